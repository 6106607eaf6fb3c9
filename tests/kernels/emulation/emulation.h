// A CUDA device on the CPU, for tests: what tests set and ask. Everything else is reached as on a real one, through
// cuda_runtime.h and its like in include/.
//
// What it finds: a kernel of which threads wait for others that never come, or that disagree on a warp's call, ends with a fault;
// so does one that writes beyond its shared memory or beside an allocation. Reads of what nobody wrote give NaN. What needs a
// barrier and lacks it gives other results in another order of threads: run in all of EveryOrder().
// What it cannot find: the order of memory operations inside a warp that a GPU runs in step, and reads of host memory by a kernel.
//
// Threads: each host thread may use a device of its own. Settings are the process's, made while nothing runs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/kernels/emulation/runtime_api.h"

namespace sysone::emulation {

// Which of the threads that can go on does so, until it waits. Blocks run in the like order.
struct ThreadOrder {
  enum class Kind {
    kForward,   // the first one: a warp goes as far as it can before the next one starts
    kBackward,  // the last one
    kInTurn,  // the next one behind the last one that ran: warps take turns at each of their calls
    kShuffled,  // any
  };
  Kind kind = Kind::kForward;
  uint64_t seed = 0;  // of kShuffled
};
void SetThreadOrder(const ThreadOrder& order);
// forward, backward, in-turn, and shuffled with some seeds.
std::vector<ThreadOrder> EveryOrder();
// "forward", "backward", "in-turn", "shuffled:SEED", and back. Aborts on another text.
std::string NameOf(const ThreadOrder& order);
ThreadOrder OrderNamed(const std::string& name);

// The first fault since the last call; empty: none. As on a real device, all calls fail once there is one; this makes the device
// usable again.
std::string TakeFault();
// Makes one. Printed as it comes.
void ReportFault(const std::string& fault);

// --- The device. ---------------------------------------------------------------------------------------------------------

// Devices that the process sees, memory of each of them in bytes, and 10 · major + minor of its architecture.
void SetDevices(int count, size_t memory_bytes, int compute_capability);

// The call of this name (such as "cudaMalloc") fails once, after `successes` more that do not.
void FailCall(const std::string& call, cudaError_t error, int successes = 0);

// --- Work. ---------------------------------------------------------------------------------------------------------------

// When the work of a stream is done.
enum class WorkTime {
  kAtOnce,  // in the call that puts it there
  kWhenAsked,  // when somebody waits for it or asks for it: a result that is read too early is not there
};
void SetWorkTime(WorkTime time);

// Puts work into a stream, as a kernel would be: a graph that captures it repeats it. Returns whether it is done; one that is not
// is called again, when somebody asks. A graph copies it for each launch.
using Work = std::function<bool()>;
cudaError_t Enqueue(cudaStream_t stream, Work work);

// --- Counting. -------------------------------------------------------------------------------------------------------------

// What a stream is given.
struct Launched {
  enum class Kind { kKernel, kProduct, kCopy };
  Kind kind;
  const void* kernel = nullptr;  // of kKernel, as are the next three
  dim3 grid = {}, block = {};
  size_t shared_bytes = 0;
};
// From now on each is told to `observer`, in the thread that gives it, and kernels and products of cuBLASLt are not run: a pass of
// any size then costs nothing but says what it consists of. Empty: everything runs again and nothing is told.
void ObserveLaunches(std::function<void(const Launched&)> observer);

}  // namespace sysone::emulation
