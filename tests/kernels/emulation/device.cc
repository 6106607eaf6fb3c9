// The emulated device as a whole: settings, errors, faults, and what it says of itself.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "base/check.h"
#include "tests/kernels/emulation/block.h"
#include "tests/kernels/emulation/runtime_state.h"

namespace sysone::emulation {
namespace {

struct Failure {
  cudaError_t error;
  int successes;  // before it
};

struct Device {
  std::mutex mutex;
  std::string fault;
  std::map<std::string, Failure> failures;  // asked for, by call
  ThreadOrder order;
  WorkTime work_time = WorkTime::kAtOnce;
  std::function<void(const Launched&)> observer;
  DeviceSettings settings;
};

Device& TheDevice() {
  static Device& device = *new Device;
  return device;
}

// Small: whoever empties the cache before a measurement shall not take long.
constexpr int kCacheBytes = 1 << 20;

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

void SetThreadOrder(const ThreadOrder& order) { TheDevice().order = order; }
ThreadOrder CurrentOrder() { return TheDevice().order; }
void SetWorkTime(WorkTime time) { TheDevice().work_time = time; }
WorkTime CurrentWorkTime() { return TheDevice().work_time; }
void ObserveLaunches(std::function<void(const Launched&)> observer) {
  TheDevice().observer = std::move(observer);
}
bool Observed(const Launched& launched) {
  if (!TheDevice().observer) return false;
  TheDevice().observer(launched);
  return true;
}
const DeviceSettings& Settings() { return TheDevice().settings; }
int CurrentDevice() { return current_device; }

std::vector<ThreadOrder> EveryOrder() {
  using Kind = ThreadOrder::Kind;
  return {{Kind::kForward, 0},  {Kind::kBackward, 0}, {Kind::kInTurn, 0},
          {Kind::kShuffled, 1}, {Kind::kShuffled, 2}, {Kind::kShuffled, 3}};
}

std::string NameOf(const ThreadOrder& order) {
  switch (order.kind) {
    case ThreadOrder::Kind::kForward:
      return "forward";
    case ThreadOrder::Kind::kBackward:
      return "backward";
    case ThreadOrder::Kind::kInTurn:
      return "in-turn";
    case ThreadOrder::Kind::kShuffled:
      break;
  }
  return "shuffled:" + std::to_string(order.seed);
}

ThreadOrder OrderNamed(const std::string& name) {
  for (const ThreadOrder& order : EveryOrder()) {
    if (NameOf(order) == name) return order;
  }
  const std::string shuffled = "shuffled:";
  SYSONE_CHECK(name.starts_with(shuffled) &&
                   name.find_first_not_of("0123456789", shuffled.size()) == std::string::npos &&
                   name.size() > shuffled.size(),
               "%s: an order is forward, backward, in-turn or shuffled:SEED", name.c_str());
  return {ThreadOrder::Kind::kShuffled, std::stoull(name.substr(shuffled.size()))};
}

void ReportFault(const std::string& fault) {
  Device& device = TheDevice();
  const std::lock_guard lock(device.mutex);
  std::fprintf(stderr, "fault of the emulated device: %s [threads %s]\n", fault.c_str(),
               NameOf(device.order).c_str());
  if (device.fault.empty()) device.fault = fault;
}

std::string TakeFault() {
  Device& device = TheDevice();
  const std::lock_guard lock(device.mutex);
  last_error = cudaSuccess;
  return std::exchange(device.fault, {});
}

void SetDevices(int count, size_t memory_bytes, int compute_capability) {
  TheDevice().settings = {count, memory_bytes, compute_capability};
}

void FailCall(const std::string& call, cudaError_t error, int successes) {
  Device& device = TheDevice();
  const std::lock_guard lock(device.mutex);
  device.failures[call] = {error, successes};
}

cudaError_t Begin(const char* call) {
  Device& device = TheDevice();
  const std::lock_guard lock(device.mutex);
  if (!device.fault.empty()) return cudaErrorLaunchFailure;
  if (device.failures.empty()) return cudaSuccess;
  const auto found = device.failures.find(call);
  if (found == device.failures.end() || found->second.successes-- > 0) return cudaSuccess;
  const cudaError_t error = found->second.error;
  device.failures.erase(found);
  return error;
}

cudaError_t End(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

}  // namespace sysone::emulation

using namespace sysone::emulation;

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaGetDeviceCount(int* count) {
  if (const cudaError_t error = Begin("cudaGetDeviceCount")) return End(error);
  *count = Settings().devices;
  return End(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return End(Begin("cudaGetDevice"));
}

cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t error = Begin("cudaSetDevice")) return End(error);
  if (device < 0 || device >= Settings().devices) return End(cudaErrorInvalidDevice);
  current_device = device;
  return End(cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return End(Begin("cudaDriverGetVersion"));
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return End(Begin("cudaRuntimeGetVersion"));
}

// An H200 in what kernels may ask for; its size and age are settings.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (const cudaError_t error = Begin("cudaGetDeviceProperties")) return End(error);
  if (device < 0 || device >= Settings().devices) return End(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "Emulated device %d", device);
  properties->uuid.bytes[15] = static_cast<char>(device + 1);
  properties->totalGlobalMem = Settings().memory_bytes;
  properties->sharedMemPerBlock = kUnaskedSharedBytes;
  properties->sharedMemPerBlockOptin = kMostSharedBytes;
  properties->sharedMemPerMultiprocessor = 228 * 1024;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = properties->maxThreadsDim[0] = properties->maxThreadsDim[1] =
      1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 0x7FFFFFFF;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->major = Settings().compute_capability / 10;
  properties->minor = Settings().compute_capability % 10;
  properties->multiProcessorCount = 132;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->maxBlocksPerMultiProcessor = 32;
  properties->memoryBusWidth = 6144;
  properties->l2CacheSize = kCacheBytes;
  properties->ECCEnabled = 1;
  properties->pciBusID = device + 1;
  return End(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (const cudaError_t error = Begin("cudaDeviceGetAttribute")) return End(error);
  if (device < 0 || device >= Settings().devices) return End(cudaErrorInvalidDevice);
  const std::map<cudaDeviceAttr, int> values = {
      {cudaDevAttrMaxThreadsPerBlock, 1024},
      {cudaDevAttrMaxSharedMemoryPerBlock, kUnaskedSharedBytes},
      {cudaDevAttrWarpSize, 32},
      {cudaDevAttrClockRate, 1980000},
      {cudaDevAttrMultiProcessorCount, 132},
      {cudaDevAttrIntegrated, 0},
      {cudaDevAttrMemoryClockRate, 3201000},
      {cudaDevAttrGlobalMemoryBusWidth, 6144},
      {cudaDevAttrL2CacheSize, kCacheBytes},
      {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
      {cudaDevAttrComputeCapabilityMajor, Settings().compute_capability / 10},
      {cudaDevAttrComputeCapabilityMinor, Settings().compute_capability % 10},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 228 * 1024},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, kMostSharedBytes}};
  const auto found = values.find(attribute);
  if (found == values.end()) return End(cudaErrorInvalidValue);
  *value = found->second;
  return End(cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (const cudaError_t error = Begin("cudaDeviceGetPCIBusId")) return End(error);
  if (device < 0 || device >= Settings().devices) return End(cudaErrorInvalidDevice);
  std::snprintf(id, static_cast<size_t>(length), "0000:%02x:00.0", device + 1);
  return End(cudaSuccess);
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (const cudaError_t error = Begin("cudaDeviceCanAccessPeer")) return End(error);
  const int devices = Settings().devices;
  if (device < 0 || device >= devices || peer < 0 || peer >= devices)
    return End(cudaErrorInvalidDevice);
  *can = device != peer;
  return End(cudaSuccess);
}

namespace {
struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};
#define SYSONE_ERROR(name, text) \
  ErrorText { name, #name, text }
constexpr ErrorText kErrors[] = {
    SYSONE_ERROR(cudaSuccess, "no error"),
    SYSONE_ERROR(cudaErrorInvalidValue, "invalid argument"),
    SYSONE_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    SYSONE_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    SYSONE_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    SYSONE_ERROR(cudaErrorInsufficientDriver,
                 "CUDA driver version is insufficient for CUDA runtime version"),
    SYSONE_ERROR(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    SYSONE_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    SYSONE_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    SYSONE_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    SYSONE_ERROR(cudaErrorNotReady, "device not ready"),
    SYSONE_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    SYSONE_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    SYSONE_ERROR(cudaErrorHostMemoryAlreadyRegistered,
                 "part or all of the requested memory range is already mapped"),
    SYSONE_ERROR(cudaErrorHostMemoryNotRegistered,
                 "pointer does not correspond to a registered memory region"),
    SYSONE_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    SYSONE_ERROR(cudaErrorNotSupported, "operation not supported"),
    SYSONE_ERROR(cudaErrorStreamCaptureUnsupported,
                 "operation not permitted when stream is capturing"),
    SYSONE_ERROR(cudaErrorStreamCaptureInvalidated,
                 "operation failed due to a previous error during capture"),
    SYSONE_ERROR(cudaErrorStreamCaptureUnmatched, "capture was not initiated in this stream"),
    SYSONE_ERROR(cudaErrorStreamCaptureIsolation,
                 "dependency created on uncaptured work in another stream"),
    SYSONE_ERROR(cudaErrorCapturedEvent,
                 "operation not permitted on an event last recorded in a capturing stream"),
};
#undef SYSONE_ERROR
}  // namespace

const char* cudaGetErrorString(cudaError_t error) {
  for (const ErrorText& one : kErrors) {
    if (one.error == error) return one.text;
  }
  return "unknown error";
}

const char* cudaGetErrorName(cudaError_t error) {
  for (const ErrorText& one : kErrors) {
    if (one.error == error) return one.name;
  }
  return "cudaErrorUnknown";
}
