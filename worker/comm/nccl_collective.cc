// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/nccl_collective.h"

#include <nccl.h>
#include <sched.h>
#include <sys/time.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "worker/comm/step_watch.h"

namespace sysone {
namespace {

std::string VersionText() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "of unknown version";
  return Format("%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

class NcclCollective final : public Collective {
 public:
  NcclCollective(std::unique_ptr<Collective> host, const RankDevice& device,
                 const NcclOptions& options)
      : Collective(host->rank(), host->size()),
        host_(std::move(host)),
        queue_(static_cast<cudaStream_t>(device.queue)),
        options_(options),
        watch_({options.stuck_after_us, options.look_every_us, [this] { return Fault(); },
                [this](const std::string& cause) { GiveUp(cause); }}) {}

  std::string Describe() const override {
    return Format("%s, their devices by NCCL %s", host_->Describe().c_str(), VersionText().c_str());
  }
  void AllReduceSum(std::span<float> values) override { host_->AllReduceSum(values); }
  void Broadcast(std::vector<std::byte>& message) override { host_->Broadcast(message); }
  void AllGather(uint64_t own, std::span<uint64_t> all) override { host_->AllGather(own, all); }
  void BeginStep(uint64_t number, const char* what, int64_t amount) override {
    watch_.Begin(number, what, amount);
  }
  void EndStep() override { watch_.End(); }

  // The communicator of all ranks. Does not return without one.
  void Connect() {
    watch_.Begin(0, "connecting the devices, of", size());
    ncclUniqueId id{};
    if (rank() == 0) Expect(ncclGetUniqueId(&id), "ncclGetUniqueId");
    std::vector<std::byte> message(sizeof id);
    std::memcpy(message.data(), &id, sizeof id);
    host_->Broadcast(message);
    SYSONE_CHECK(message.size() == sizeof id, "an NCCL id of %zu bytes", message.size());
    std::memcpy(&id, message.data(), sizeof id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const std::lock_guard lock(mutex_);
    const ncclResult_t begun = ncclCommInitRankConfig(&comm_, size(), id, rank(), &config);
    Complete(begun, "ncclCommInitRankConfig", options_.join_within_us);
    watch_.End();
  }

  void SumTensor(std::span<float> memory) override {
    const std::lock_guard lock(mutex_);
    const ncclResult_t begun = ncclAllReduce(memory.data(), memory.data(), memory.size(),
                                             ncclFloat32, ncclSum, comm_, queue_);
    if (begun != ncclSuccess) Complete(begun, "ncclAllReduce", options_.stuck_after_us);
  }

  void Finish() override {
    watch_.Begin(0, "leaving the other devices, of", size());
    {
      const std::lock_guard lock(mutex_);
      Complete(ncclCommFinalize(comm_), "ncclCommFinalize", options_.stuck_after_us);
      Expect(ncclCommDestroy(comm_), "ncclCommDestroy");
      comm_ = nullptr;
    }
    watch_.End();
    host_->Finish();
  }

 private:
  // A communicator that does not block gives every call back at once, and shows later what became of it.
  void Complete(ncclResult_t result, const char* call, int64_t within_us) {
    const int64_t begin_us = MonotonicUs();
    while (result == ncclInProgress && comm_ != nullptr) {
      if (MonotonicUs() - begin_us > within_us)
        GiveUp(Format("%s is not done after %.1f s", call, static_cast<double>(within_us) * 1e-6));
      sched_yield();
      Expect(ncclCommGetAsyncError(comm_, &result), "ncclCommGetAsyncError");
    }
    Expect(result, call);
  }

  void Expect(ncclResult_t result, const char* call) {
    if (result != ncclSuccess) GiveUp(call + (": " + ErrorText(result)));
  }

  std::string ErrorText(ncclResult_t result) const {
    const char* const last = ncclGetLastError(comm_);
    const bool more = last != nullptr && *last != '\0';
    return Format("%s%s%s%s", ncclGetErrorString(result), more ? " (" : "", more ? last : "",
                  more ? ")" : "");
  }

  // For the watch. A call in work holds the communicator, and looks after its errors itself.
  std::string Fault() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || comm_ == nullptr) return "";
    ncclResult_t result = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
    if (asked != ncclSuccess) result = asked;
    if (result == ncclSuccess || result == ncclInProgress) return "";
    return "NCCL: " + ErrorText(result);
  }

  // The calling thread may hold mutex_, and another one may wait for ever in a call. `giving_up_` is never let go.
  [[noreturn]] void GiveUp(const std::string& cause) {
    giving_up_.lock();
    SYSONE_ERROR("rank %d: %s: %s; the group ends", rank(), watch_.Step().c_str(), cause.c_str());
    // Ends the process by a signal when aborting takes too long.
    itimerval patience{};
    patience.it_value.tv_sec = options_.abort_within_us / 1'000'000;
    patience.it_value.tv_usec = options_.abort_within_us % 1'000'000;
    setitimer(ITIMER_REAL, &patience, nullptr);
    if (comm_ != nullptr) ncclCommAbort(comm_);
    SYSONE_CHECK(false, "rank %d cannot go on: %s", rank(), cause.c_str());
    __builtin_unreachable();
  }

  const std::unique_ptr<Collective> host_;
  const cudaStream_t queue_;
  const NcclOptions options_;
  // NCCL's calls, of this thread and of the watch's: polling for errors also finishes what was begun.
  std::mutex mutex_;
  std::mutex giving_up_;
  ncclComm_t comm_ = nullptr;
  StepWatch watch_;  // the last member: its thread uses the others
};

// Of ranks with the same mark: "0 and 2"; "" when there are none.
std::string Twins(std::span<const uint64_t> marks) {
  for (size_t a = 0; a < marks.size(); ++a)
    for (size_t b = a + 1; b < marks.size(); ++b)
      if (marks[a] == marks[b]) return Format("%zu and %zu", a, b);
  return "";
}

size_t Different(std::vector<uint64_t> marks) {
  std::ranges::sort(marks);
  return static_cast<size_t>(std::ranges::unique(marks).begin() - marks.begin());
}

// Ranks are the same program, so they hash alike.
std::vector<uint64_t> Gather(Collective& host, const std::string& text) {
  std::vector<uint64_t> all(static_cast<size_t>(host.size()));
  host.AllGather(std::hash<std::string>{}(text), all);
  return all;
}

}  // namespace

Result<std::unique_ptr<Collective>> JoinNccl(std::unique_ptr<Collective> host,
                                             const RankDevice& device, const NcclOptions& options) {
  const size_t machines = Different(Gather(*host, device.machine));
  SYSONE_INFO("rank %d of %d: %s (PCI %s) on %s, %s; %zu machine%s, NCCL %s", host->rank(),
              host->size(), device.name.c_str(), device.pci_bus_id.c_str(), device.host.c_str(),
              device.reach.c_str(), machines, machines == 1 ? "" : "s", VersionText().c_str());
  const std::string twins = Twins(Gather(*host, device.machine + device.pci_bus_id));
  if (!twins.empty())
    return Error(Code::kInvalidArgument,
                 "ranks %s are on one device, and each needs its own; rank %d is on %s (PCI %s) of "
                 "%s: give the group as many devices as it has ranks there, or fewer ranks",
                 twins.c_str(), host->rank(), device.name.c_str(), device.pci_bus_id.c_str(),
                 device.host.c_str());
  CheckAgreement(*host, std::hash<std::string>{}(VersionText()), "the version of NCCL");
  auto ranks = std::make_unique<NcclCollective>(std::move(host), device, options);
  ranks->Connect();
  return std::unique_ptr<Collective>(std::move(ranks));
}

}  // namespace sysone
