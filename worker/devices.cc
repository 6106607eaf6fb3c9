// SPDX-License-Identifier: Apache-2.0
#include "worker/devices.h"

namespace sysone {

LocalPlace LocalPlaceOf(const ServeOptions& options, const LaunchPlace& place) {
  // A worker alone was started by the router, whatever launcher started that.
  if (options.tensor_parallel_size == 1) return {};
  if (place.local_world == 0) return {place.rank, options.tensor_parallel_size};
  return {place.local_rank, place.local_world};
}

Result<int> DeviceOf(const ServeOptions& options, LocalPlace place, int visible) {
  if (visible == 0)
    return Error(Code::kUnsupported,
                 "this process sees no GPU: nvidia-smi lists them, CUDA_VISIBLE_DEVICES may hide "
                 "them; --device cpu serves without one");
  const int groups = LocalGroups(options);
  const int needed = groups * place.ranks;
  if (needed > visible)
    return Error(
        Code::kInvalidArgument,
        "%d rank%s of each of %d group%s on this machine need%s %d GPUs, one each, and %d are "
        "visible (CUDA_VISIBLE_DEVICES may hide some); take a smaller --tensor-parallel-size%s",
        place.ranks, place.ranks == 1 ? "" : "s", groups, groups == 1 ? "" : "s",
        place.ranks == 1 ? "s" : "", needed, visible,
        groups == 1 ? "" : " or --data-parallel-size");
  return options.role_index * place.ranks + place.rank;
}

BackendOptions BackendOptionsOf(const ServeOptions& options) {
  BackendOptions out;
  out.dtype = options.dtype;
  out.threads = options.threads;
  out.memory_utilization = options.gpu_memory_utilization;
  out.graphs = !options.enforce_eager;
  out.batch_invariant = options.batch_invariant;
  return out;
}

}  // namespace sysone
