// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/shared_memory_collective.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "shm_arena/futex.h"

namespace sysone {
namespace {

// Small enough for the caches of two cores, large enough that a pass's sum is a few chunks.
constexpr size_t kChunkFloats = size_t{1} << 18;
constexpr size_t kMessageBytes = size_t{1} << 20;
// A slice of a sum begins at a line of the cache.
constexpr size_t kSliceFloats = 16;
// Looks at another rank's counter before giving way, some ten microseconds: more would be taken from that rank where there are
// more ranks than cores.
constexpr int kLooks = 500;
// Gives way for this long, then sleeps. Waking up takes some 50 µs; but where other programs have the cores, a rank that is not
// there has lost its turn for milliseconds, and whoever goes on looking takes time from it.
constexpr int64_t kYieldUs = 200;
constexpr int64_t kNapUs = 1'000'000;

enum class Step : uint32_t { kNone, kSum, kMessage, kNotes, kEnd };

const char* StepName(Step step) {
  switch (step) {
    case Step::kNone:
      return "nothing yet";
    case Step::kSum:
      return "a sum of floats";
    case Step::kMessage:
      return "a message of rank 0, waited for or in bytes";
    case Step::kNotes:
      return "comparing notes";
    case Step::kEnd:
      return "the end";
  }
  return "?";
}

// What one rank tells the others. The counter is released and acquired, the rest is read behind it.
struct alignas(128) RankLine {
  std::atomic<uint32_t> arrivals;  // at meetings, two an operation and chunk; wraps
  std::atomic<uint32_t> sleepers;  // ranks asleep on `arrivals`
  std::atomic<uint64_t> operations;
  std::atomic<Step> step;        // of the current operation
  std::atomic<uint64_t> amount;  // of it: floats; bytes, known to rank 0 alone; the number noted
};
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

class SharedMemoryCollective final : public Collective {
 public:
  SharedMemoryCollective(int32_t rank, int32_t size, std::byte* memory,
                         SharedCollectiveOptions options)
      : Collective(rank, size),
        options_(std::move(options)),
        lines_(reinterpret_cast<RankLine*>(memory)),
        message_(memory + sizeof(RankLine) * static_cast<size_t>(size)),
        sum_(reinterpret_cast<float*>(message_ + kMessageBytes)) {}

  std::string Describe() const override { return Format("%d ranks over shared memory", size()); }

  void AllReduceSum(std::span<float> values) override {
    Begin(Step::kSum, values.size());
    for (size_t first = 0; first < values.size(); first += kChunkFloats)
      SumChunk(values.subspan(first, std::min(kChunkFloats, values.size() - first)));
  }

  void Broadcast(std::vector<std::byte>& message) override {
    Begin(Step::kMessage, rank() == 0 ? message.size() : 0);
    // The others wait for the first piece as long as it takes.
    bool patient = rank() != 0;
    size_t done = 0;
    do {
      if (rank() == 0)
        std::memcpy(message_, message.data() + done,
                    std::min(kMessageBytes, message.size() - done));
      Meet(patient);
      patient = false;
      ExpectSameStep();
      message.resize(Line(0).amount.load(std::memory_order_relaxed));
      const size_t piece = std::min(kMessageBytes, message.size() - done);
      if (rank() != 0) std::memcpy(message.data() + done, message_, piece);
      done += piece;
      Meet(false);
    } while (done < message.size());
  }

  void AllGather(uint64_t own, std::span<uint64_t> all) override {
    Begin(Step::kNotes, own);
    Meet(true);
    ExpectSameStep();
    for (int32_t r = 0; r < size(); ++r)
      all[static_cast<size_t>(r)] = Line(r).amount.load(std::memory_order_relaxed);
    Meet(true);
  }

  void Finish() override {
    Begin(Step::kEnd, 0);
    Meet(false);
    ExpectSameStep();
    Meet(false);
    if (options_.on_finish) options_.on_finish();
  }

 private:
  RankLine& Line(int32_t r) const { return lines_[r]; }
  float* Input(int32_t r) const { return sum_ + kChunkFloats * static_cast<size_t>(r + 1); }

  void Begin(Step step, uint64_t amount) {
    RankLine& own = Line(rank());
    own.operations.store(own.operations.load(std::memory_order_relaxed) + 1,
                         std::memory_order_relaxed);
    own.step.store(step, std::memory_order_relaxed);
    own.amount.store(amount, std::memory_order_relaxed);
  }

  void SumChunk(std::span<float> values) {
    std::memcpy(Input(rank()), values.data(), values.size_bytes());
    Meet(false);
    ExpectSameStep();
    const size_t slices = (values.size() + kSliceFloats - 1) / kSliceFloats;
    const auto begin_of = [&](int32_t r) {
      return std::min(values.size(),
                      slices * static_cast<size_t>(r) / static_cast<size_t>(size()) * kSliceFloats);
    };
    const size_t begin = begin_of(rank()), end = begin_of(rank() + 1);
    std::copy(Input(0) + begin, Input(0) + end, sum_ + begin);
    for (int32_t r = 1; r < size(); ++r) {
      const float* const input = Input(r);
      for (size_t i = begin; i < end; ++i) sum_[i] += input[i];
    }
    // Inputs are read before this meeting and written behind it; the sum is read behind it and written behind the next one.
    Meet(false);
    std::memcpy(values.data(), sum_, values.size_bytes());
  }

  // Between the two meetings of an operation nobody changes his line.
  void ExpectSameStep() const {
    const RankLine& own = Line(rank());
    for (int32_t r = 0; r < size(); ++r) {
      const RankLine& other = Line(r);
      const Step step = other.step.load(std::memory_order_relaxed);
      const uint64_t amount = other.amount.load(std::memory_order_relaxed);
      const bool same =
          step == own.step.load(std::memory_order_relaxed) &&
          (step != Step::kSum || amount == own.amount.load(std::memory_order_relaxed));
      SYSONE_CHECK(same, "the ranks have come apart: this is %s; that is %s",
                   WhereIs(rank()).c_str(), WhereIs(r).c_str());
    }
  }

  // Tells the others that this rank is here, and waits until all are.
  void Meet(bool patient) {
    ++arrivals_;
    RankLine& own = Line(rank());
    // Sequentially consistent, both: either the sleeper's count is seen here, or the sleeper sees the new arrival.
    own.arrivals.store(arrivals_, std::memory_order_seq_cst);
    if (own.sleepers.load(std::memory_order_seq_cst) != 0) FutexWakeAll(&own.arrivals);
    for (int32_t r = 0; r < size(); ++r)
      if (r != rank()) WaitFor(r, patient);
  }

  bool Here(int32_t r) const {
    return static_cast<int32_t>(Line(r).arrivals.load(std::memory_order_seq_cst) - arrivals_) >= 0;
  }

  void WaitFor(int32_t r, bool patient) {
    for (int look = 0; look < kLooks; ++look) {
      if (Here(r)) return;
      Pause();
    }
    const int64_t begin_us = MonotonicUs();
    while (MonotonicUs() - begin_us < kYieldUs) {
      if (Here(r)) return;
      sched_yield();
    }
    RankLine& line = Line(r);
    line.sleepers.fetch_add(1, std::memory_order_seq_cst);
    for (;;) {
      const uint32_t seen = line.arrivals.load(std::memory_order_seq_cst);
      if (Here(r)) break;
      const int64_t now_us = MonotonicUs();
      SYSONE_CHECK(patient || now_us - begin_us < options_.stuck_after_us,
                   "rank %d is stuck: %s, and has kept this rank waiting for %.1f s", r,
                   WhereIs(r).c_str(), static_cast<double>(now_us - begin_us) * 1e-6);
      FutexWait(&line.arrivals, seen, now_us + std::min(kNapUs, options_.stuck_after_us));
    }
    line.sleepers.fetch_sub(1, std::memory_order_relaxed);
  }

  std::string WhereIs(int32_t r) const {
    const RankLine& line = Line(r);
    return Format("rank %d at operation %llu, %s (%llu)", r,
                  static_cast<unsigned long long>(line.operations.load(std::memory_order_relaxed)),
                  StepName(line.step.load(std::memory_order_relaxed)),
                  static_cast<unsigned long long>(line.amount.load(std::memory_order_relaxed)));
  }

  static void Pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  const SharedCollectiveOptions options_;
  RankLine* const lines_;
  std::byte* const message_;
  float* const sum_;
  uint32_t arrivals_ = 0;
};

}  // namespace

Result<SharedMapping> SharedMapping::Create(size_t bytes) {
  const int fd = memfd_create("sysone-ranks", MFD_CLOEXEC);
  if (fd < 0) return Error(Code::kOutOfMemory, "no shared memory: %s", strerror(errno));
  // Backed now: running out later would be a signal in the middle of a pass.
  const int error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  void* const data =
      error == 0 ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  if (data == MAP_FAILED) {
    const Status status = Error(Code::kOutOfMemory, "no %zu bytes of shared memory: %s", bytes,
                                strerror(error != 0 ? error : errno));
    close(fd);
    return status;
  }
  return SharedMapping(static_cast<std::byte*>(data), bytes, fd);
}

Result<SharedMapping> SharedMapping::Open(pid_t pid, int fd, size_t bytes) {
  const std::string path = Format("/proc/%d/fd/%d", pid, fd);
  const int opened = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) return Error(Code::kUnavailable, "%s: %s", path.c_str(), strerror(errno));
  const off_t size = lseek(opened, 0, SEEK_END);
  void* const data = size == static_cast<off_t>(bytes)
                         ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0)
                         : MAP_FAILED;
  if (data == MAP_FAILED) {
    close(opened);
    return Error(Code::kUnavailable, "%s cannot be mapped", path.c_str());
  }
  return SharedMapping(static_cast<std::byte*>(data), bytes, opened);
}

SharedMapping::SharedMapping(SharedMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_), fd_(other.fd_) {}

SharedMapping::~SharedMapping() {
  if (data_ == nullptr) return;
  munmap(data_, bytes_);
  close(fd_);
}

size_t SharedCollectiveBytes(int32_t size) {
  return sizeof(RankLine) * static_cast<size_t>(size) + kMessageBytes +
         sizeof(float) * kChunkFloats * static_cast<size_t>(size + 1);
}

std::unique_ptr<Collective> MakeSharedMemoryCollective(int32_t rank, int32_t size,
                                                       std::byte* memory,
                                                       SharedCollectiveOptions options) {
  return std::make_unique<SharedMemoryCollective>(rank, size, memory, std::move(options));
}

}  // namespace sysone
