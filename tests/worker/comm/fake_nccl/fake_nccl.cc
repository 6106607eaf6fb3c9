// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/comm/fake_nccl/fake_nccl.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "shm_arena/futex.h"
#include "tests/worker/comm/fake_nccl/run_on_stream.h"
#include "worker/comm/shared_memory_collective.h"

namespace {

constexpr int kMaxRanks = 16;
constexpr size_t kChunkFloats = 1000;  // a sum of some thousands takes several
constexpr int64_t kLookUs = 5'000;     // at what may have changed without a wake-up
// A call is in progress until it was asked for so often.
constexpr int kPollsPerCall = 2;

struct Line {
  std::atomic<uint32_t> arrivals;  // at meetings; wraps
  std::atomic<uint32_t> polls;     // of ncclCommGetAsyncError
};
struct Shared {
  Line lines[kMaxRanks];
  float inputs[kMaxRanks][kChunkFloats];
};
struct Id {
  pid_t pid;
  int fd;
};

sysone::NcclFaults& Faults() {
  static sysone::NcclFaults faults;
  return faults;
}

// The memory behind the id that this process gave away, kept for the ranks that open it.
std::unique_ptr<sysone::SharedMapping>& OwnMapping() {
  static std::unique_ptr<sysone::SharedMapping> mapping;
  return mapping;
}

}  // namespace

struct ncclComm {
  int rank = 0;
  int size = 0;
  std::optional<sysone::SharedMapping> mapping;
  std::atomic<ncclResult_t> state{ncclInProgress};
  std::atomic<bool> aborted{false};
  std::thread joining;
  std::function<void()> begun;  // what the call in progress does when it is through
  int polls_left = 0;
  int64_t sums = 0;  // asked for
  std::atomic<bool> summing{false};
  uint32_t arrivals = 0;  // of the thread that waits

  Shared& shared() { return *reinterpret_cast<Shared*>(mapping->data()); }

  // False: aborted meanwhile.
  bool Meet() {
    ++arrivals;
    Line& own = shared().lines[rank];
    own.arrivals.store(arrivals, std::memory_order_seq_cst);
    sysone::FutexWakeAll(&own.arrivals);
    for (int r = 0; r < size; ++r) {
      const std::atomic<uint32_t>& other = shared().lines[r].arrivals;
      for (uint32_t seen; static_cast<int32_t>((seen = other.load()) - arrivals) < 0;) {
        if (aborted) return false;
        sysone::FutexWait(&other, seen, sysone::MonotonicUs() + kLookUs);
      }
    }
    return true;
  }

  void Join() {
    const sysone::NcclFaults& faults = Faults();
    while (faults.never_joins && !aborted) sched_yield();
    if (Meet()) state = faults.joins_with;
  }

  // Rank (part + 1) % size gives the first summand of a part, then the ring goes round.
  bool SumChunk(const float* in, float* out, size_t count) {
    std::copy_n(in, count, shared().inputs[rank]);
    if (!Meet()) return false;
    for (size_t i = 0; i < count; ++i) {
      const int part = static_cast<int>(i * static_cast<size_t>(size) / count);
      float sum = shared().inputs[(part + 1) % size][i];
      for (int step = 2; step <= size; ++step) sum += shared().inputs[(part + step) % size][i];
      out[i] = sum;
    }
    return Meet();
  }

  void WaitForPolls(uint32_t more) {
    uint32_t wanted[kMaxRanks];
    for (int r = 0; r < size; ++r) wanted[r] = shared().lines[r].polls.load() + more;
    for (int r = 0; r < size; ++r)
      while (r != rank && static_cast<int32_t>(shared().lines[r].polls.load() - wanted[r]) < 0 &&
             !aborted)
        sched_yield();
  }

  void Sum(int64_t number, const float* in, float* out, size_t count) {
    const sysone::NcclFaults& faults = Faults();
    summing = true;
    if (number == faults.until) faults.at_until();
    if (number == faults.slow_sum) WaitForPolls(faults.slow_polls);
    if (number == faults.bad_sum) state = ncclRemoteError;
    while ((number == faults.endless_sum || number == faults.bad_sum) && !aborted) sched_yield();
    for (size_t first = 0; first < count && !aborted; first += kChunkFloats) {
      const size_t chunk = std::min(kChunkFloats, count - first);
      if (!SumChunk(in + first, out + first, chunk)) break;
    }
    summing = false;
  }

  // What every call but the first begins with.
  ncclResult_t Begin(std::function<void()> work) {
    if (state == ncclInProgress || begun) return ncclInvalidUsage;
    if (state != ncclSuccess) return state;
    begun = std::move(work);
    polls_left = kPollsPerCall;
    return ncclInProgress;
  }
};

namespace sysone {

void SetNcclFaults(const NcclFaults& faults) { Faults() = faults; }

}  // namespace sysone

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  auto created = sysone::SharedMapping::Create(sizeof(Shared));
  if (!created.ok()) return ncclSystemError;
  OwnMapping() = std::make_unique<sysone::SharedMapping>(std::move(created).value());
  const Id own{getpid(), OwnMapping()->fd()};
  std::memcpy(id, &own, sizeof own);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (ranks < 1 || ranks > kMaxRanks || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  if (config->blocking != 0) return ncclInvalidUsage;  // the fake has but the other kind
  Id where;
  std::memcpy(&where, &id, sizeof where);
  auto opened = sysone::SharedMapping::Open(where.pid, where.fd, sizeof(Shared));
  if (!opened.ok()) return ncclSystemError;
  auto made = std::make_unique<ncclComm>();
  made->rank = rank;
  made->size = ranks;
  made->mapping.emplace(std::move(opened).value());
  made->joining = std::thread([own = made.get()] { own->Join(); });
  *comm = made.release();
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  ++comm->shared().lines[comm->rank].polls;
  *result = comm->state;
  if (*result != ncclSuccess || !comm->begun) return ncclSuccess;
  if (comm->polls_left-- > 0) {
    *result = ncclInProgress;
    return ncclSuccess;
  }
  std::exchange(comm->begun, nullptr)();
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclFloat32 || operation != ncclSum || in != out) return ncclInvalidArgument;
  const int64_t number = comm->sums++;
  if (number == Faults().bad_call) return ncclInternalError;
  return comm->Begin([=] {
    sysone::RunOnStream(stream, [=] {
      comm->Sum(number, static_cast<const float*>(in), static_cast<float*>(out), count);
    });
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return comm->Begin([] {});
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm->begun || comm->state == ncclInProgress) return ncclInvalidUsage;
  comm->joining.join();
  // Whoever destroys a communicator that sums has not waited for its stream.
  SYSONE_CHECK(!comm->summing, "a sum is not done");
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->aborted = true;
  while (Faults().abort_hangs) sched_yield();
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error"
                                   : "an error of the fake";
}

const char* ncclGetLastError(ncclComm_t) { return "the last error's text"; }
