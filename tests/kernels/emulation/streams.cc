// Streams, events, graphs and launches of the emulated device. A stream is a queue of work; a graph is a list of it.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "tests/kernels/emulation/block.h"
#include "tests/kernels/emulation/runtime_state.h"

using namespace sysone::emulation;

struct CUgraph_st {
  std::vector<Work> works;
};
struct CUgraphExec_st {
  std::vector<Work> works;
};

struct CUstream_st {
  std::deque<Work> works;
  std::unique_ptr<CUgraph_st> capture;  // while it captures
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  bool invalidated = false;
};

// What one cudaEventRecord promises.
struct Moment {
  std::atomic<bool> reached = false;
  std::chrono::steady_clock::time_point time;
};
struct CUevent_st {
  std::shared_ptr<Moment> moment;  // null: never recorded
  cudaStream_t stream = nullptr;
  bool captured = false, timed = true;
};

namespace {

struct Streams {
  std::mutex mutex;
  std::set<cudaStream_t> all;
  std::map<const void*, size_t> shared_bytes;  // asked for by cudaFuncSetAttribute
};
Streams& TheStreams() {
  static Streams& streams = *new Streams;
  return streams;
}

// Captures that forbid what might disturb them: of all host threads, and of this one.
std::atomic<int> global_captures = 0;
thread_local std::vector<cudaStream_t> own_captures;

// Null stands for the stream that each host thread has without asking.
cudaStream_t StreamOf(cudaStream_t stream) {
  static thread_local CUstream_st own;
  return stream ? stream : &own;
}

// Whether all of its work is done.
bool Advance(cudaStream_t stream) {
  while (!stream->works.empty()) {
    // Work that ends a thread's turn stays in front: nothing behind it may begin.
    if (!stream->works.front()()) return false;
    stream->works.pop_front();
  }
  return true;
}

void Finish(cudaStream_t stream) {
  while (!Advance(stream)) std::this_thread::yield();
}

cudaError_t Invalidate(cudaStream_t stream) {
  stream->invalidated = true;
  return cudaErrorStreamCaptureUnsupported;
}

// The device's fault, if work that was waited for made one.
cudaError_t AfterWaiting() {
  CheckGuards();
  return Begin("");
}

}  // namespace

namespace sysone::emulation {

cudaError_t Enqueue(cudaStream_t stream, Work work) {
  stream = StreamOf(stream);
  if (stream->invalidated) return cudaErrorStreamCaptureInvalidated;
  if (stream->capture) {
    stream->capture->works.push_back(std::move(work));
    return cudaSuccess;
  }
  stream->works.push_back(std::move(work));
  if (CurrentWorkTime() == WorkTime::kAtOnce) Advance(stream);
  return cudaSuccess;
}

cudaError_t ForbiddenWhileCapturing() {
  for (const cudaStream_t stream : own_captures) {
    if (stream->mode != cudaStreamCaptureModeRelaxed) return Invalidate(stream);
  }
  return global_captures > 0 ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t LaunchKernel(const cudaLaunchConfig_t& config, const void* kernel,
                         std::function<void()> thread, const std::vector<const void*>& pointers) {
  if (const cudaError_t error = Begin("cudaLaunchKernelEx")) return End(error);
  const dim3 grid = config.gridDim, block = config.blockDim;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0 ||
      grid.x > 0x7FFFFFFF || grid.y > 65535 || grid.z > 65535 || block.z > 64 ||
      uint64_t{block.x} * block.y * block.z > 1024) {
    return End(cudaErrorInvalidConfiguration);
  }
  size_t most_shared = kUnaskedSharedBytes;
  {
    Streams& streams = TheStreams();
    const std::lock_guard lock(streams.mutex);
    const auto asked = streams.shared_bytes.find(kernel);
    if (asked != streams.shared_bytes.end()) most_shared = asked->second;
  }
  if (config.dynamicSmemBytes > most_shared) return End(cudaErrorInvalidValue);
  for (const void* pointer : pointers) {
    if (pointer && MemoryAt(pointer, 0) == Memory::kPageable) {
      ReportFault("a kernel is given a pointer to memory that the device cannot see");
      return End(cudaErrorIllegalAddress);
    }
  }
  if (Observed({Launched::Kind::kKernel, kernel, grid, block, config.dynamicSmemBytes}))
    return End(cudaSuccess);
  KernelCall call{grid, block, config.dynamicSmemBytes, std::move(thread)};
  return End(Enqueue(config.stream, [call = std::move(call)] {
    if (!Begin("")) RunGrid(call);
    return true;
  }));
}

}  // namespace sysone::emulation

// --- Copies. -----------------------------------------------------------------------------------------------------------------

namespace {

// Whether a copy in this direction may have memory of this kind at one end.
cudaError_t CheckEnd(Memory memory, bool is_device_end, cudaMemcpyKind kind) {
  if (memory == Memory::kBeyond) return cudaErrorInvalidValue;
  if (kind == cudaMemcpyDefault) return cudaSuccess;
  return (memory == Memory::kDevice) == is_device_end ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream,
                 bool wait) {
  if (bytes == 0) return cudaSuccess;
  const Memory source = MemoryAt(from, bytes), target = MemoryAt(to, bytes);
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (const cudaError_t error = CheckEnd(target, to_device, kind)) return error;
  if (const cudaError_t error = CheckEnd(source, from_device, kind)) return error;
  Observed({.kind = Launched::Kind::kCopy});
  stream = StreamOf(stream);
  const bool pageable = source == Memory::kPageable || target == Memory::kPageable;
  if (stream->capture && (pageable || wait)) return Invalidate(stream);
  if (source == Memory::kPageable) {  // is read before the call returns
    const auto* bytes_now = static_cast<const std::byte*>(from);
    const auto staged = std::make_shared<std::vector<std::byte>>(bytes_now, bytes_now + bytes);
    const cudaError_t error = Enqueue(stream, [to, staged] {
      std::memcpy(to, staged->data(), staged->size());
      return true;
    });
    if (error) return error;
  } else {
    const cudaError_t error = Enqueue(stream, [to, from, bytes] {
      std::memmove(to, from, bytes);
      return true;
    });
    if (error) return error;
  }
  if (!wait && target != Memory::kPageable) return cudaSuccess;
  Finish(stream);
  return AfterWaiting();
}

cudaError_t Fill(void* memory, int value, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  const Memory kind = MemoryAt(memory, bytes);
  if (kind == Memory::kBeyond || kind == Memory::kPageable) return cudaErrorInvalidValue;
  return Enqueue(stream, [memory, value, bytes] {
    std::memset(memory, value, bytes);
    return true;
  });
}

}  // namespace

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (const cudaError_t error = Begin("cudaMemcpyAsync")) return End(error);
  return End(Copy(to, from, bytes, kind, stream, false));
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t error = Begin("cudaMemcpy")) return End(error);
  if (const cudaError_t error = ForbiddenWhileCapturing()) return End(error);
  return End(Copy(to, from, bytes, kind, nullptr, true));
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  if (const cudaError_t error = Begin("cudaMemcpy2DAsync")) return End(error);
  if (width > to_pitch || width > from_pitch) return End(cudaErrorInvalidValue);
  for (size_t row = 0; row < height; ++row) {
    const cudaError_t error =
        Copy(static_cast<std::byte*>(to) + row * to_pitch,
             static_cast<const std::byte*>(from) + row * from_pitch, width, kind, stream, false);
    if (error) return End(error);
  }
  return End(cudaSuccess);
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  if (const cudaError_t error = Begin("cudaMemsetAsync")) return End(error);
  return End(Fill(memory, value, bytes, stream));
}

cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  if (const cudaError_t error = Begin("cudaMemset")) return End(error);
  if (const cudaError_t error = ForbiddenWhileCapturing()) return End(error);
  if (const cudaError_t error = Fill(memory, value, bytes, nullptr)) return End(error);
  Finish(StreamOf(nullptr));
  return End(cudaSuccess);
}

// --- Streams. ----------------------------------------------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (const cudaError_t error = Begin("cudaStreamCreateWithFlags")) return End(error);
  *stream = new CUstream_st;
  Streams& streams = TheStreams();
  const std::lock_guard lock(streams.mutex);
  streams.all.insert(*stream);
  return End(cudaSuccess);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (const cudaError_t error = Begin("cudaStreamDestroy")) return End(error);
  {
    Streams& streams = TheStreams();
    const std::lock_guard lock(streams.mutex);
    if (streams.all.erase(stream) == 0) return End(cudaErrorInvalidResourceHandle);
  }
  if (stream->capture) cudaStreamEndCapture(stream, nullptr);
  Finish(stream);
  delete stream;
  return End(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t error = Begin("cudaStreamSynchronize")) return End(error);
  stream = StreamOf(stream);
  if (stream->capture) return End(Invalidate(stream));
  Finish(stream);
  return End(AfterWaiting());
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const cudaError_t error = Begin("cudaStreamQuery")) return End(error);
  stream = StreamOf(stream);
  if (stream->capture) return End(Invalidate(stream));
  return End(Advance(stream) ? AfterWaiting() : cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t error = Begin("cudaDeviceSynchronize")) return End(error);
  if (const cudaError_t error = ForbiddenWhileCapturing()) return End(error);
  std::set<cudaStream_t> all;
  {
    Streams& streams = TheStreams();
    const std::lock_guard lock(streams.mutex);
    all = streams.all;
  }
  for (const cudaStream_t stream : all) Finish(stream);
  Finish(StreamOf(nullptr));
  return End(AfterWaiting());
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* user_data) {
  if (const cudaError_t error = Begin("cudaLaunchHostFunc")) return End(error);
  return End(Enqueue(stream, [function, user_data] {
    function(user_data);
    return true;
  }));
}

// --- Events. -------------------------------------------------------------------------------------------------------------------

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (const cudaError_t error = Begin("cudaEventCreateWithFlags")) return End(error);
  *event = new CUevent_st;
  (*event)->timed = (flags & cudaEventDisableTiming) == 0;
  return End(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (const cudaError_t error = Begin("cudaEventDestroy")) return End(error);
  delete event;
  return End(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t error = Begin("cudaEventRecord")) return End(error);
  event->stream = StreamOf(stream);
  event->captured = event->stream->capture != nullptr;
  const auto moment = event->moment = std::make_shared<Moment>();
  return End(Enqueue(stream, [moment] {
    moment->time = std::chrono::steady_clock::now();
    moment->reached = true;
    return true;
  }));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t error = Begin("cudaEventQuery")) return End(error);
  if (event->captured) return End(cudaErrorCapturedEvent);
  if (!event->moment) return End(cudaSuccess);
  if (!event->moment->reached) Advance(event->stream);
  return End(event->moment->reached ? AfterWaiting() : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t error = Begin("cudaEventSynchronize")) return End(error);
  if (event->captured) return End(cudaErrorCapturedEvent);
  while (event->moment && !event->moment->reached) {
    if (!Advance(event->stream)) std::this_thread::yield();
  }
  return End(AfterWaiting());
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (const cudaError_t error = Begin("cudaEventElapsedTime")) return End(error);
  if (!start->timed || !end->timed || !start->moment || !end->moment) {
    return End(cudaErrorInvalidResourceHandle);
  }
  if (!start->moment->reached || !end->moment->reached) return End(cudaErrorNotReady);
  const std::chrono::duration<float, std::milli> elapsed = end->moment->time - start->moment->time;
  *milliseconds = elapsed.count();
  return End(cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (const cudaError_t error = Begin("cudaStreamWaitEvent")) return End(error);
  stream = StreamOf(stream);
  if (!event->moment || event->stream == stream) return End(cudaSuccess);
  if (event->captured || stream->capture) return End(cudaErrorStreamCaptureIsolation);
  return End(Enqueue(stream, [moment = event->moment, other = event->stream] {
    if (!moment->reached) Advance(other);
    return moment->reached.load();
  }));
}

// --- Graphs. -----------------------------------------------------------------------------------------------------------------

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (const cudaError_t error = Begin("cudaStreamBeginCapture")) return End(error);
  if (!stream) return End(cudaErrorStreamCaptureUnsupported);  // not of the default stream
  if (stream->capture) return End(cudaErrorInvalidValue);
  stream->capture = std::make_unique<CUgraph_st>();
  stream->mode = mode;
  if (mode == cudaStreamCaptureModeGlobal) ++global_captures;
  own_captures.push_back(stream);
  return End(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (graph) *graph = nullptr;
  if (!stream || !stream->capture) return End(cudaErrorStreamCaptureUnmatched);
  std::unique_ptr<CUgraph_st> captured = std::move(stream->capture);
  if (stream->mode == cudaStreamCaptureModeGlobal) --global_captures;
  std::erase(own_captures, stream);
  if (std::exchange(stream->invalidated, false)) return End(cudaErrorStreamCaptureInvalidated);
  if (const cudaError_t error = Begin("cudaStreamEndCapture")) return End(error);
  if (graph) *graph = captured.release();
  return End(cudaSuccess);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  if (const cudaError_t error = Begin("cudaStreamIsCapturing")) return End(error);
  stream = StreamOf(stream);
  *status = !stream->capture      ? cudaStreamCaptureStatusNone
            : stream->invalidated ? cudaStreamCaptureStatusInvalidated
                                  : cudaStreamCaptureStatusActive;
  return End(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  if (const cudaError_t error = Begin("cudaGraphInstantiate")) return End(error);
  if (!graph) return End(cudaErrorInvalidValue);
  *exec = new CUgraphExec_st{graph->works};
  return End(cudaSuccess);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return End(Begin("cudaGraphUpload")); }

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (const cudaError_t error = Begin("cudaGraphLaunch")) return End(error);
  for (const Work& work : exec->works) {
    if (const cudaError_t error = Enqueue(stream, work)) return End(error);
  }
  return End(cudaSuccess);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, CUgraphNode_st** nodes, size_t* count) {
  if (const cudaError_t error = Begin("cudaGraphGetNodes")) return End(error);
  if (nodes) return End(cudaErrorNotSupported);  // they are counted alone
  *count = graph->works.size();
  return End(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return End(Begin("cudaGraphDestroy"));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return End(Begin("cudaGraphExecDestroy"));
}

// --- Kernels. ------------------------------------------------------------------------------------------------------------------

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (const cudaError_t error = Begin("cudaFuncSetAttribute")) return End(error);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return End(cudaSuccess);
  if (value < 0 || static_cast<size_t>(value) > kMostSharedBytes) return End(cudaErrorInvalidValue);
  Streams& streams = TheStreams();
  const std::lock_guard lock(streams.mutex);
  streams.shared_bytes[kernel] = static_cast<size_t>(value);
  return End(cudaSuccess);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  if (const cudaError_t error = Begin("cudaFuncGetAttributes")) return End(error);
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  Streams& streams = TheStreams();
  const std::lock_guard lock(streams.mutex);
  const auto asked = streams.shared_bytes.find(kernel);
  attributes->maxDynamicSharedSizeBytes =
      static_cast<int>(asked == streams.shared_bytes.end() ? kUnaskedSharedBytes : asked->second);
  return End(cudaSuccess);
}
