// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/mpi_group.h"

#include <mpi.h>
#include <unistd.h>

#include <optional>

#include "base/clock.h"
#include "base/log.h"
#include "worker/comm/mpi_collective.h"
#include "worker/comm/shared_memory_collective.h"

namespace sysone {
namespace {

// MPI's own error handler ends the process before a call returns anything but success.

// Where rank 0 offers its memory; pid 0: it has none.
struct Offer {
  int32_t pid = 0;
  int32_t fd = -1;
  uint64_t mark =
      0;  // stands in the memory, because the pid may be another process in another place
};

// The memory of all ranks; nullopt, on all of them, unless every rank sees it.
std::optional<SharedMapping> ShareMemory(int32_t rank, int32_t size) {
  const size_t bytes = SharedCollectiveBytes(size);
  std::optional<SharedMapping> mapping;
  Offer offer;
  if (rank == 0) {
    auto created = SharedMapping::Create(bytes);
    if (created.ok()) {
      mapping.emplace(std::move(created).value());
      offer = {getpid(), mapping->fd(), static_cast<uint64_t>(MonotonicUs()) | 1};
      *reinterpret_cast<uint64_t*>(mapping->data()) = offer.mark;
    } else {
      SYSONE_WARNING("%s; the ranks use MPI", created.status().message().c_str());
    }
  }
  MPI_Bcast(&offer, sizeof offer, MPI_BYTE, 0, MPI_COMM_WORLD);
  if (rank != 0 && offer.pid != 0) {
    auto opened = SharedMapping::Open(offer.pid, offer.fd, bytes);
    if (opened.ok() && *reinterpret_cast<uint64_t*>(opened->data()) == offer.mark)
      mapping.emplace(std::move(opened).value());
  }
  int all = mapping ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (all == 0) return std::nullopt;
  if (rank == 0) *reinterpret_cast<uint64_t*>(mapping->data()) = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  return mapping;
}

}  // namespace

std::unique_ptr<Collective> JoinMpiGroup(const JoinOptions& options) {
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
  SYSONE_CHECK(level >= MPI_THREAD_FUNNELED, "this MPI library allows no threads");
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (options.share_memory) {
    if (auto mapping = ShareMemory(rank, size)) {
      const auto kept = std::make_shared<SharedMapping>(*std::move(mapping));
      return MakeSharedMemoryCollective(rank, size, kept->data(),
                                        {options.stuck_after_us, [kept] { MPI_Finalize(); }});
    }
  }
  return MakeMpiCollective(rank, size, options.stuck_after_us);
}

}  // namespace sysone
