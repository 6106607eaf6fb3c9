// The one queue of a backend: all its copies and kernels go there, in order, and only here is it waited for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace sysone {

// Of the calling thread's device at construction; one thread.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }

  // Returns when all that was put in is done. For as long as a pass usually takes it asks again and again, which answers within
  // a microsecond; after that it sleeps, and an interrupt ends that.
  void Wait();
  // How often Wait was called: who keeps the number knows later whether what was put in before is done.
  uint64_t waits() const { return waits_; }

  // While it records, nothing may wait and nothing may be staged.
  bool recording() const { return recording_; }
  void set_recording(bool recording) { recording_ = recording; }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t done_ = nullptr;
  uint64_t waits_ = 0;
  bool recording_ = false;
};

}  // namespace sysone
