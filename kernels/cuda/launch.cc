// What becomes of a CUDA call that fails.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.h"

#include "base/check.h"
#include "base/log.h"

namespace sysone {
namespace {

// A thread's, as the capture of a stream and CUDA's own last error are: the calls have nothing else in common.
thread_local ForgivenCalls* forgiven = nullptr;

}  // namespace

ForgivenCalls::ForgivenCalls() {
  SYSONE_CHECK(forgiven == nullptr, "calls of this thread are forgiven already");
  forgiven = this;
}

ForgivenCalls::~ForgivenCalls() { forgiven = nullptr; }

namespace internal {

void LibraryCallFailed(const char* file, int line, const char* call, const char* error) {
  if (forgiven == nullptr) CheckFailed(file, line, call, "%s", error);
  if (forgiven->first_.empty()) forgiven->first_ = Format("%s: %s", call, error);
}

void CudaCallFailed(const char* file, int line, const char* call, cudaError_t error) {
  const std::string text = Format("%s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
  LibraryCallFailed(file, line, call, text.c_str());
}

}  // namespace internal
}  // namespace sysone
