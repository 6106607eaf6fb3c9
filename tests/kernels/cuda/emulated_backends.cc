// What the tests of kernels/ and worker/ are linked with in place of kernels/backend_registry.cc, to run over the emulated CUDA
// device: the CUDA backend in several orders of threads, each as a backend of its own, and the reference.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/emulation/emulation.h"

namespace sysone {
namespace {

// "cuda forward", "cuda shuffled:7" …
constexpr std::string_view kPrefix = "cuda ";

}  // namespace

std::vector<std::string> BackendNames() {
  return {"cuda forward", "cuda backward", "cuda shuffled:7"};
}

Result<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options) {
  if (options.dtype != "float32" && options.dtype != "bfloat16")
    return Error(Code::kUnsupported, "here types are compared that the reference has, too");
  if (options.name == "reference")
    return MakeReferenceBackend(options.dtype == "float32" ? Dtype::kFloat32 : Dtype::kBfloat16);
  if (!options.name.starts_with(kPrefix) || options.isa != "auto")
    return Error(Code::kUnsupported, "no backend %s", options.name.c_str());
  emulation::SetThreadOrder(emulation::OrderNamed(options.name.substr(kPrefix.size())));
  BackendOptions cuda = options;
  // What the tests of bit identity expect of every backend is what this one promises so.
  cuda.batch_invariant = true;
  return MakeCudaBackend(cuda);
}

}  // namespace sysone
