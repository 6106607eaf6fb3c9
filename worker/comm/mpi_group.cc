// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/mpi_group.h"

#include <mpi.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <optional>

#include "base/clock.h"
#include "base/log.h"
#include "worker/comm/shared_memory_collective.h"

namespace sysone {
namespace {

// MPI's own error handler ends the process before a call returns anything but success.

constexpr int kMessageTag = 1;
// A rank that waits for a message gives way this long, then naps, each time twice as long. So an idle group takes no
// processor time worth mentioning, and a message after a long silence comes up to a millisecond late.
constexpr int64_t kYieldUs = 2'000;
constexpr long kFirstNapNs = 50'000;
constexpr long kLongestNapNs = 1'000'000;

void WaitForMessage(MPI_Status& status) {
  const int64_t begin_us = MonotonicUs();
  long nap_ns = kFirstNapNs;
  for (;;) {
    int there = 0;
    MPI_Iprobe(0, kMessageTag, MPI_COMM_WORLD, &there, &status);
    if (there != 0) return;
    if (MonotonicUs() - begin_us < kYieldUs) {
      sched_yield();
      continue;
    }
    const timespec nap{0, nap_ns};
    nanosleep(&nap, nullptr);
    nap_ns = std::min(2 * nap_ns, kLongestNapNs);
  }
}

// For ranks on several machines. Sums are our own, of exchanged slices, because MPI_Allreduce may add in another order from one
// size or run to the next.
class MpiCollective final : public Collective {
 public:
  MpiCollective(int32_t rank, int32_t size) : Collective(rank, size) {}

  std::string Describe() const override { return Format("%d ranks over MPI", size()); }

  // Everybody sends slice r of its values to rank r, which adds up what it got, and sends the sum to everybody.
  void AllReduceSum(std::span<float> values) override {
    if (values.empty()) return;
    Cut(values.size());
    const size_t own = static_cast<size_t>(counts_[static_cast<size_t>(rank())]);
    inputs_.resize(own * static_cast<size_t>(size()));
    got_counts_.assign(static_cast<size_t>(size()), static_cast<int>(own));
    got_offsets_.resize(static_cast<size_t>(size()));
    for (size_t r = 0; r < got_offsets_.size(); ++r) got_offsets_[r] = static_cast<int>(r * own);
    MPI_Alltoallv(values.data(), counts_.data(), offsets_.data(), MPI_FLOAT, inputs_.data(),
                  got_counts_.data(), got_offsets_.data(), MPI_FLOAT, MPI_COMM_WORLD);
    float* const sum = values.data() + offsets_[static_cast<size_t>(rank())];
    std::copy_n(inputs_.data(), own, sum);
    for (size_t r = 1; r < got_offsets_.size(); ++r)
      for (size_t i = 0; i < own; ++i) sum[i] += inputs_[r * own + i];
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, values.data(), counts_.data(),
                   offsets_.data(), MPI_FLOAT, MPI_COMM_WORLD);
  }

  void Broadcast(std::vector<std::byte>& message) override {
    if (rank() == 0) {
      SYSONE_CHECK(message.size() <= INT_MAX, "a message of %zu bytes", message.size());
      for (int r = 1; r < size(); ++r)
        MPI_Send(message.data(), static_cast<int>(message.size()), MPI_BYTE, r, kMessageTag,
                 MPI_COMM_WORLD);
      return;
    }
    MPI_Status status;
    WaitForMessage(status);
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    message.resize(static_cast<size_t>(bytes));
    MPI_Recv(message.data(), bytes, MPI_BYTE, 0, kMessageTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }

  void AllGather(uint64_t own, std::span<uint64_t> all) override {
    MPI_Allgather(&own, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, MPI_COMM_WORLD);
  }

  void Finish() override { MPI_Finalize(); }

 private:
  // counts_ and offsets_: which of `n` values are each rank's slice.
  void Cut(size_t n) {
    SYSONE_CHECK(n <= INT_MAX, "a sum of %zu floats", n);
    const auto ranks = static_cast<size_t>(size());
    counts_.resize(ranks);
    offsets_.resize(ranks);
    for (size_t r = 0; r < ranks; ++r) {
      offsets_[r] = static_cast<int>(n * r / ranks);
      counts_[r] = static_cast<int>(n * (r + 1) / ranks) - offsets_[r];
    }
  }

  std::vector<int> counts_, offsets_, got_counts_, got_offsets_;
  std::vector<float> inputs_;  // [ranks, own slice]
};

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
  return std::make_unique<MpiCollective>(rank, size);
}

}  // namespace sysone
