// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/mpi_collective.h"

#include <mpi.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <climits>
#include <vector>

#include "base/clock.h"
#include "base/log.h"

namespace sysone {
namespace {

// MPI's own error handler ends the process before a call returns anything but success.

constexpr int kMessageTag = 1;
constexpr int kPartTag = 2;
// A rank that waits gives way this long, then naps: within a pass always the same short time, for rank 0's next message each time
// twice as long. So an idle group takes no processor time worth mentioning, and a message after a long silence comes up to a
// millisecond late.
constexpr int64_t kYieldUs = 2'000;
constexpr long kShortNapNs = 50'000;
constexpr long kLongestNapNs = 1'000'000;

// Time that passes while a rank waits.
class Waiting {
 public:
  explicit Waiting(long longest_nap_ns) : longest_nap_ns_(longest_nap_ns) {}
  void Pause() {
    if (Us() < kYieldUs) {
      sched_yield();
      return;
    }
    const timespec nap{0, nap_ns_};
    nanosleep(&nap, nullptr);
    nap_ns_ = std::min(2 * nap_ns_, longest_nap_ns_);
  }
  int64_t Us() const { return MonotonicUs() - begin_us_; }

 private:
  const long longest_nap_ns_;
  const int64_t begin_us_ = MonotonicUs();
  long nap_ns_ = kShortNapNs;
};

// Sums are our own, of exchanged slices: MPI_Allreduce may add in another order from one size or run to the next. And exchanges
// are single messages, not MPI's collectives, because only so it shows which rank does not answer.
class MpiCollective final : public Collective {
 public:
  MpiCollective(int32_t rank, int32_t size, int64_t stuck_after_us)
      : Collective(rank, size),
        stuck_after_us_(stuck_after_us),
        heard_(static_cast<size_t>(size)) {}

  std::string Describe() const override { return Format("%d ranks over MPI", size()); }

  // Everybody sends slice r of its values to rank r, which adds up what it got, and sends the sum to everybody.
  void AllReduceSum(std::span<float> values) override {
    Begin("a sum of floats", values.size());
    if (values.empty() || size() == 1) return;
    Cut(values.size());
    const auto own = static_cast<size_t>(rank());
    const auto slice = [&](size_t r) {
      return std::as_writable_bytes(values.subspan(cuts_[r], cuts_[r + 1] - cuts_[r]));
    };
    const size_t own_floats = cuts_[own + 1] - cuts_[own];
    inputs_.resize(own_floats * static_cast<size_t>(size()));
    const auto input = [&](size_t r) {
      return std::span(inputs_).subspan(r * own_floats, own_floats);
    };
    for (size_t r = 0; r < heard_.size(); ++r) Receive(r, std::as_writable_bytes(input(r)));
    for (size_t r = 0; r < heard_.size(); ++r) Send(r, slice(r));
    Await(false);
    float* const sum = values.data() + cuts_[own];
    std::copy_n(sum, own_floats, input(own).data());
    std::copy_n(inputs_.data(), own_floats, sum);
    for (size_t r = 1; r < heard_.size(); ++r)
      for (size_t i = 0; i < own_floats; ++i) sum[i] += input(r)[i];
    for (size_t r = 0; r < heard_.size(); ++r) Receive(r, slice(r));
    for (size_t r = 0; r < heard_.size(); ++r) Send(r, slice(own));
    Await(false);
  }

  void Broadcast(std::vector<std::byte>& message) override {
    Begin("a message of rank 0, in bytes", message.size());
    patient_ = false;
    if (rank() == 0) {
      SYSONE_CHECK(message.size() <= INT_MAX, "a message of %zu bytes", message.size());
      for (size_t r = 1; r < heard_.size(); ++r) Send(r, message, kMessageTag);
      return Await(false);
    }
    MPI_Status status;
    int there = 0;
    for (Waiting waiting(kLongestNapNs);; waiting.Pause()) {
      MPI_Iprobe(0, kMessageTag, MPI_COMM_WORLD, &there, &status);
      if (there != 0) break;
    }
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    message.resize(static_cast<size_t>(bytes));
    amount_ = message.size();
    Receive(0, message, kMessageTag);
    Await(false);
  }

  void AllGather(uint64_t own, std::span<uint64_t> all) override {
    Begin("comparing notes", own);
    for (size_t r = 0; r < heard_.size(); ++r)
      Receive(r, std::as_writable_bytes(all.subspan(r, 1)));
    for (size_t r = 0; r < heard_.size(); ++r)
      Send(r, std::as_bytes(std::span<const uint64_t>(&own, 1)));
    all[static_cast<size_t>(rank())] = own;
    Await(patient_);
  }

  void Finish() override { MPI_Finalize(); }

 private:
  // What a rank did when something last came from it.
  struct Heard {
    uint64_t operation = 0;
    const char* step = "nothing yet";
    uint64_t amount = 0;
  };
  struct Request {
    size_t rank;
    bool receives;
    size_t bytes;
  };

  void Begin(const char* step, uint64_t amount) {
    ++operation_;
    step_ = step;
    amount_ = amount;
  }

  // cuts_[r] … cuts_[r + 1]: which of `n` values are rank r's slice.
  void Cut(size_t n) {
    SYSONE_CHECK(n <= INT_MAX / sizeof(float), "a sum of %zu floats", n);
    cuts_.resize(heard_.size() + 1);
    for (size_t r = 0; r < cuts_.size(); ++r) cuts_[r] = n * r / heard_.size();
  }

  // Nothing is exchanged with oneself.
  void Receive(size_t from, std::span<std::byte> bytes, int tag = kPartTag) {
    if (from == static_cast<size_t>(rank())) return;
    MPI_Irecv(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, static_cast<int>(from), tag,
              MPI_COMM_WORLD, &mpi_.emplace_back());
    requests_.push_back({from, true, bytes.size()});
  }
  void Send(size_t to, std::span<const std::byte> bytes, int tag = kPartTag) {
    if (to == static_cast<size_t>(rank())) return;
    MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, static_cast<int>(to), tag,
              MPI_COMM_WORLD, &mpi_.emplace_back());
    requests_.push_back({to, false, bytes.size()});
  }

  // Until everything that was begun is through.
  void Await(bool patient) {
    statuses_.resize(mpi_.size());
    int done = 0;
    for (Waiting waiting(kShortNapNs);; waiting.Pause()) {
      MPI_Testall(static_cast<int>(mpi_.size()), mpi_.data(), &done, statuses_.data());
      if (done != 0) break;
      if (!patient && waiting.Us() > stuck_after_us_) NameWhoIsStuck(waiting.Us());
    }
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (!requests_[i].receives) continue;
      int bytes = 0;
      MPI_Get_count(&statuses_[i], MPI_BYTE, &bytes);
      SYSONE_CHECK(
          static_cast<size_t>(bytes) == requests_[i].bytes,
          "the ranks have come apart: rank %zu sent %d bytes of %zu; this is rank %d at %s",
          requests_[i].rank, bytes, requests_[i].bytes, rank(), Here().c_str());
      heard_[requests_[i].rank] = {operation_, step_, amount_};
    }
    mpi_.clear();
    requests_.clear();
  }

  std::string Here() const {
    return Format("operation %llu, %s (%llu)", static_cast<unsigned long long>(operation_), step_,
                  static_cast<unsigned long long>(amount_));
  }

  // The first one of which nothing came, or to which nothing could be sent.
  [[noreturn]] void NameWhoIsStuck(int64_t waited_us) {
    size_t stuck = 0;
    for (const bool receives : {false, true})
      for (size_t i = requests_.size(); i-- > 0;) {
        int done = 0;
        MPI_Request_get_status(mpi_[i], &done, MPI_STATUS_IGNORE);
        if (done == 0 && requests_[i].receives == receives) stuck = requests_[i].rank;
      }
    const Heard& last = heard_[stuck];
    SYSONE_CHECK(false,
                 "rank %zu is stuck: last heard of at operation %llu, %s (%llu), it has kept this "
                 "rank waiting for %.1f s at %s",
                 stuck, static_cast<unsigned long long>(last.operation), last.step,
                 static_cast<unsigned long long>(last.amount),
                 static_cast<double>(waited_us) * 1e-6, Here().c_str());
    __builtin_unreachable();
  }

  const int64_t stuck_after_us_;
  bool patient_ = true;  // until rank 0's first message
  uint64_t operation_ = 0;
  const char* step_ = "";
  uint64_t amount_ = 0;
  std::vector<Heard> heard_;      // by rank
  std::vector<MPI_Request> mpi_;  // of the current exchange; requests_ describes them
  std::vector<Request> requests_;
  std::vector<MPI_Status> statuses_;
  std::vector<size_t> cuts_;
  std::vector<float> inputs_;  // [ranks, own slice]
};

}  // namespace

std::unique_ptr<Collective> MakeMpiCollective(int32_t rank, int32_t size, int64_t stuck_after_us) {
  return std::make_unique<MpiCollective>(rank, size, stuck_after_us);
}

}  // namespace sysone
