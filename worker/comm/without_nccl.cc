// In place of nccl_collective.cc where the build has found CUDA but no NCCL.
// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/nccl_collective.h"

namespace sysone {

Result<std::unique_ptr<Collective>> JoinNccl(std::unique_ptr<Collective>, const RankDevice&,
                                             const NcclOptions&) {
  return Error(Code::kUnsupported,
               "this sysone-worker-cuda was built without NCCL, so groups are of one rank: take "
               "--tensor-parallel-size 1, or install libnccl-dev and build again");
}

}  // namespace sysone
