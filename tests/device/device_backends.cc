// What the tests of kernels/ and worker/ are linked with here in place of kernels/backend_registry.cc: the CUDA backend of device 0,
// and the reference.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/reference/reference_backend.h"

namespace sysone {

std::vector<std::string> BackendNames() { return {"cuda"}; }

Result<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options) {
  if (options.dtype != "float32" && options.dtype != "bfloat16")
    return Error(Code::kUnsupported, "here types are compared that the reference has, too");
  if (options.name == "reference")
    return MakeReferenceBackend(options.dtype == "float32" ? Dtype::kFloat32 : Dtype::kBfloat16);
  if (options.name != "cuda" || options.isa != "auto")
    return Error(Code::kUnsupported, "no backend %s", options.name.c_str());
  BackendOptions cuda = options;
  // What the tests of bit identity expect of every backend is what this one promises so.
  cuda.batch_invariant = true;
  return MakeCudaBackend(cuda);
}

}  // namespace sysone
