// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/log.h"
#include "kernels/cuda/built_in.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_facts.h"
#include "worker/comm/nccl_collective.h"
#include "worker/comm/watched_rank.h"
#include "worker/devices.h"

namespace sysone {
namespace {

Result<std::unique_ptr<Backend>> MakeBackendOnDevice(const ServeOptions& options,
                                                     LocalPlace place) {
  BackendOptions backend = BackendOptionsOf(options);
  SYSONE_ASSIGN_OR_RETURN(backend.device, DeviceOf(options, place, VisibleCudaDevices()));
  return MakeCudaBackend(backend);
}

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

// Containers of one machine may have names of their own, but see the same boot of its kernel.
std::string Machine() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  return file >> id ? id : HostName();
}

std::string ReachText(int device, int devices) {
  if (devices == 1) return "the only GPU here that is visible";
  int near = 0;
  for (int other = 0; other < devices; ++other)
    if (other != device && CudaDevicesReachEachOther(device, other)) ++near;
  return Format("reaches %d of the %d other GPUs here directly", near, devices - 1);
}

// What every pass needs works, before a model is loaded: each rank's number once, and in every place.
Status CheckSum(Collective& ranks, Backend& backend) {
  constexpr int64_t kCols = 1024;
  const auto tensor = backend.NewTensor(1, kCols);
  std::vector<float> values(kCols);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i % 7 + 1) * static_cast<float>(ranks.rank() + 1);
  ranks.BeginStep(0, "the first sum of floats", kCols);
  backend.Upload(values, 1, *tensor);
  ranks.SumTensor(backend.Memory(*tensor, {0, 1}));
  backend.Download(*tensor, 1, values);
  ranks.EndStep();
  const int32_t all = ranks.size() * (ranks.size() + 1) / 2;
  for (size_t i = 0; i < values.size(); ++i)
    if (const auto expected = static_cast<float>(i % 7 + 1) * static_cast<float>(all);
        values[i] != expected)
      return Error(Code::kUnavailable,
                   "the devices do not sum rightly: %g instead of %g in place %zu of rank %d; the "
                   "variables NCCL_DEBUG=INFO and NCCL_P2P_DISABLE=1 help to find out why",
                   static_cast<double>(values[i]), static_cast<double>(expected), i, ranks.rank());
  return {};
}

Result<std::unique_ptr<Collective>> JoinDevices(std::unique_ptr<Collective> ranks,
                                                const ServeOptions& options, LocalPlace place,
                                                Backend& backend) {
  const auto stuck_after_us = static_cast<int64_t>(options.stuck_after_s * 1e6);
  if (ranks->size() == 1) return WatchRank(std::move(ranks), stuck_after_us);
  const int visible = VisibleCudaDevices();
  SYSONE_ASSIGN_OR_RETURN(const int device, DeviceOf(options, place, visible));
  const CudaDeviceFacts facts = FactsOfCudaDevice(device);
  NcclOptions nccl;
  nccl.stuck_after_us = stuck_after_us;
  SYSONE_ASSIGN_OR_RETURN(auto joined, JoinNccl(std::move(ranks),
                                                {backend.Queue(), facts.name, facts.pci_bus_id,
                                                 Machine(), HostName(), ReachText(device, visible)},
                                                nccl));
  SYSONE_RETURN_IF_ERROR(CheckSum(*joined, backend));
  if (joined->rank() == 0) SYSONE_INFO("%s", joined->Describe().c_str());
  if (joined->rank() == 0 && joined->size() > 2 && options.batch_invariant)
    SYSONE_WARNING(
        "--batch-invariant: sums over %d GPUs still depend on the size of a pass in their last "
        "bits; over two they do not",
        joined->size());
  return joined;
}

}  // namespace

Devices CudaDevices() { return {MakeBackendOnDevice, JoinDevices, DescribeCudaKernels}; }

}  // namespace sysone
