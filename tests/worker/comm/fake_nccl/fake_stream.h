// A stream for tests without a CUDA backend: a thread that does one thing after the other, while the caller goes on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "tests/worker/comm/fake_nccl/run_on_stream.h"

namespace sysone {

class FakeStream {
 public:
  FakeStream();
  ~FakeStream();  // waits
  cudaStream_t handle() const;
  // Until everything that was given is done.
  void Wait();

 private:
  std::unique_ptr<CUstream_st> stream_;
};

}  // namespace sysone
