// The emulated device's memory, streams and graphs do what CUDA's do, and refuse what CUDA refuses.
// SPDX-License-Identifier: Apache-2.0
#include <thread>

#include "tests/kernels/emulation/emulation_fixture.h"
#include "tests/kernels/emulation/emulation_kernels.h"

namespace sysone::emulation {
namespace {

using RuntimeTest = EmulationFixture;

TEST_F(RuntimeTest, WhatNobodyWroteIsNaN) {
  const OnDevice<float> values(3);
  for (const float value : values.Read()) EXPECT_NE(value, value);
}

TEST_F(RuntimeTest, MemoryIsCountedAndEnds) {
  SetDevices(1, 10000, 90);
  size_t free = 0, total = 0;
  void *first = nullptr, *second = nullptr;
  SYSONE_CUDA(cudaMalloc(&first, 6000));
  SYSONE_CUDA(cudaMemGetInfo(&free, &total));
  EXPECT_EQ(free, 4000u);
  EXPECT_EQ(total, 10000u);
  EXPECT_EQ(cudaMalloc(&second, 4001), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  SYSONE_CUDA(cudaFree(first));
  SYSONE_CUDA(cudaMalloc(&second, 10000));
  SYSONE_CUDA(cudaFree(second));
  EXPECT_EQ(cudaFree(second), cudaErrorInvalidValue);
}

TEST_F(RuntimeTest, DevicesAreThoseThatWereSet) {
  SetDevices(2, 1 << 20, 80);
  int count = 0, major = 0;
  SYSONE_CUDA(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, 2);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  SYSONE_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 1));
  EXPECT_EQ(major, 8);
  std::thread([] {  // each host thread has one of its own
    int device = 0;
    SYSONE_CUDA(cudaSetDevice(1));
    SYSONE_CUDA(cudaGetDevice(&device));
    EXPECT_EQ(device, 1);
  })
      .join();
  int device = -1;
  SYSONE_CUDA(cudaGetDevice(&device));
  EXPECT_EQ(device, 0);
  SetDevices(0, 1 << 20, 80);
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
}

TEST_F(RuntimeTest, CopiesGoWhereTheirKindSaysAndNotBeyondAnAllocation) {
  const OnDevice<float> values(4);
  float host[4] = {1, 2, 3, 4};
  EXPECT_EQ(cudaMemcpy(values.data(), host, 17, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host, host, 16, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(host, 0, 16), cudaErrorInvalidValue);
  SYSONE_CUDA(cudaMemcpy(values.data(), host, 16, cudaMemcpyHostToDevice));
  EXPECT_EQ(values.Read(), (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(RuntimeTest, AKernelIsNotGivenMemoryOfTheHostUnlessItIsPinned) {
  float host = 0;
  EXPECT_DEATH(Store(&host, 1, nullptr), "memory that the device cannot see");
  float* pinned = nullptr;
  SYSONE_CUDA(cudaHostAlloc(&pinned, sizeof(float), cudaHostAllocDefault));
  Store(pinned, 5, nullptr);
  SYSONE_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(*pinned, 5);
  SYSONE_CUDA(cudaFreeHost(pinned));
  SYSONE_CUDA(cudaHostRegister(&host, sizeof host, cudaHostRegisterDefault));
  Store(&host, 6, nullptr);
  SYSONE_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(host, 6);
  SYSONE_CUDA(cudaHostUnregister(&host));
}

TEST_F(RuntimeTest, AFaultFailsEveryCallUntilItIsTaken) {
  ReportFault("as a test wants it");
  int count = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_EQ(TakeFault(), "as a test wants it");
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(RuntimeTest, ACallFailsWhenATestAsksForIt) {
  FailCall("cudaMalloc", cudaErrorDevicesUnavailable, 1);
  void *first = nullptr, *second = nullptr;
  EXPECT_EQ(cudaMalloc(&first, 8), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&second, 8), cudaErrorDevicesUnavailable);
  EXPECT_EQ(cudaMalloc(&second, 8), cudaSuccess);
  SYSONE_CUDA(cudaFree(first));
  SYSONE_CUDA(cudaFree(second));
}

TEST_F(RuntimeTest, AFailedCallEndsTheProcessWithItsNameAndReason) {
  EXPECT_DEATH(SYSONE_CUDA(cudaSetDevice(7)), "cudaSetDevice\\(7\\).*invalid device ordinal");
}

TEST_F(RuntimeTest, LaunchesBeyondTheDevicesLimitsAreRefused) {
  const auto launch = [](dim3 grid, dim3 block, size_t shared_bytes) {
    cudaLaunchConfig_t config;
    config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = shared_bytes;
    void (*nothing)(int) = [](int) {};
    return cudaLaunchKernelEx(&config, nothing, 0);
  };
  EXPECT_EQ(launch(1, 1024, 0), cudaSuccess);
  EXPECT_EQ(launch(0, 32, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, 1025, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch({1, 65536}, 32, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, 32, 48 * 1024), cudaSuccess);
  EXPECT_EQ(launch(1, 32, 48 * 1024 + 1), cudaErrorInvalidValue);
}

TEST_F(RuntimeTest, MoreSharedMemoryHasToBeAskedFor) {
  cudaLaunchConfig_t config;
  config.dynamicSmemBytes = 100 * 1024;
  void (*kernel)(int) = [](int) { __syncthreads(); };
  EXPECT_EQ(cudaLaunchKernelEx(&config, kernel, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 * 1024),
            cudaErrorInvalidValue);
  SYSONE_CUDA(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 * 1024));
  EXPECT_EQ(cudaLaunchKernelEx(&config, kernel, 0), cudaSuccess);
}

// --- Streams. ------------------------------------------------------------------------------------------------------------------

TEST_F(RuntimeTest, AResultThatIsReadBeforeItIsWaitedForIsNotThere) {
  SetWorkTime(WorkTime::kWhenAsked);
  const OwnStream stream;
  const OnDevice<float> value(1);
  float* pinned = nullptr;
  SYSONE_CUDA(cudaMallocHost(&pinned, sizeof(float)));
  *pinned = 0;
  Store(value.data(), 3, stream);
  SYSONE_CUDA(cudaMemcpyAsync(pinned, value.data(), 4, cudaMemcpyDeviceToHost, stream));
  EXPECT_EQ(*pinned, 0);
  SYSONE_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(*pinned, 3);
  SYSONE_CUDA(cudaFreeHost(pinned));
}

TEST_F(RuntimeTest, EventsAreReachedWhenTheWorkBeforeThemIsDone) {
  SetWorkTime(WorkTime::kWhenAsked);
  const OwnStream stream, other;
  cudaEvent_t begin = nullptr, end = nullptr;
  SYSONE_CUDA(cudaEventCreate(&begin));
  SYSONE_CUDA(cudaEventCreate(&end));
  EXPECT_EQ(cudaEventQuery(end), cudaSuccess);  // never recorded
  bool done = false, other_saw_it = false;
  SYSONE_CUDA(cudaEventRecord(begin, stream));
  SYSONE_CUDA(Enqueue(stream, [&done] { return done; }));
  SYSONE_CUDA(cudaEventRecord(end, stream));
  SYSONE_CUDA(cudaStreamWaitEvent(other, end));
  SYSONE_CUDA(Enqueue(other, [&] { return other_saw_it = done; }));
  EXPECT_EQ(cudaEventQuery(end), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(other), cudaErrorNotReady);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaErrorNotReady);
  done = true;
  SYSONE_CUDA(cudaStreamSynchronize(other));
  EXPECT_TRUE(other_saw_it);
  EXPECT_EQ(cudaEventQuery(end), cudaSuccess);
  SYSONE_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
  EXPECT_GE(milliseconds, 0);
  SYSONE_CUDA(cudaEventDestroy(begin));
  SYSONE_CUDA(cudaEventDestroy(end));
}

// --- Graphs. -------------------------------------------------------------------------------------------------------------------

TEST_F(RuntimeTest, AGraphRepeatsWhatWasCapturedWithItsArguments) {
  const OwnStream stream;
  const OnDevice<float> value(std::vector<float>{1}), copy(std::vector<float>{2});
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  SYSONE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  float argument = 7;
  Store(value.data(), argument, stream);
  argument = 8;  // by value: the graph keeps 7
  SYSONE_CUDA(cudaMemcpyAsync(copy.data(), value.data(), 4, cudaMemcpyDeviceToDevice, stream));
  SYSONE_CUDA(cudaStreamEndCapture(stream, &graph));
  EXPECT_EQ(copy.Read()[0], 2);  // nothing ran
  size_t nodes = 0;
  SYSONE_CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 2u);
  SYSONE_CUDA(cudaGraphInstantiate(&exec, graph));
  SYSONE_CUDA(cudaGraphDestroy(graph));
  for (int i = 0; i < 3; ++i) {
    SYSONE_CUDA(cudaMemset(copy.data(), 0, 4));
    SYSONE_CUDA(cudaGraphLaunch(exec, stream));
    SYSONE_CUDA(cudaStreamSynchronize(stream));
    EXPECT_EQ(copy.Read()[0], 7);
  }
  SYSONE_CUDA(cudaGraphExecDestroy(exec));
}

TEST_F(RuntimeTest, WorkWithAStateBeginsAnewInEachLaunchOfItsGraph) {
  const OwnStream stream;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  int finished = 0;
  SYSONE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  SYSONE_CUDA(Enqueue(stream, [&finished, calls = 0]() mutable {
    finished += ++calls == 3;
    return calls == 3;
  }));
  SYSONE_CUDA(cudaStreamEndCapture(stream, &graph));
  SYSONE_CUDA(cudaGraphInstantiate(&exec, graph));
  for (int launches = 1; launches <= 2; ++launches) {
    SYSONE_CUDA(cudaGraphLaunch(exec, stream));
    SYSONE_CUDA(cudaStreamSynchronize(stream));
    EXPECT_EQ(finished, launches);
  }
  SYSONE_CUDA(cudaGraphExecDestroy(exec));
  SYSONE_CUDA(cudaGraphDestroy(graph));
}

struct Forbidden {
  const char* name;
  cudaError_t (*call)(cudaStream_t stream, float* device);
};

class ForbiddenCallTest : public EmulationFixture, public testing::WithParamInterface<Forbidden> {};

TEST_P(ForbiddenCallTest, FailsWhileItsStreamCapturesAndSpoilsTheCapture) {
  const OwnStream stream;
  const OnDevice<float> value(1);
  SYSONE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  EXPECT_EQ(GetParam().call(stream, value.data()), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(Enqueue(stream, [] { return true; }), cudaErrorStreamCaptureInvalidated);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
  SYSONE_CUDA(cudaStreamSynchronize(stream));  // usable again
}

float pageable = 0;
INSTANTIATE_TEST_SUITE_P(
    All, ForbiddenCallTest,
    testing::Values(Forbidden{"Malloc",
                              [](cudaStream_t, float*) {
                                void* memory = nullptr;
                                return cudaMalloc(&memory, 4);
                              }},
                    Forbidden{"Free", [](cudaStream_t, float* device) { return cudaFree(device); }},
                    Forbidden{"Synchronize", [](cudaStream_t stream,
                                                float*) { return cudaStreamSynchronize(stream); }},
                    Forbidden{"SynchronizeDevice",
                              [](cudaStream_t, float*) { return cudaDeviceSynchronize(); }},
                    Forbidden{"PageableCopy",
                              [](cudaStream_t stream, float* device) {
                                return cudaMemcpyAsync(device, &pageable, 4, cudaMemcpyHostToDevice,
                                                       stream);
                              }}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_F(RuntimeTest, AnEventOfACaptureCannotBeWaitedFor) {
  const OwnStream stream;
  cudaEvent_t event = nullptr;
  SYSONE_CUDA(cudaEventCreate(&event));
  SYSONE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  SYSONE_CUDA(cudaEventRecord(event, stream));
  EXPECT_EQ(cudaEventSynchronize(event), cudaErrorCapturedEvent);
  cudaGraph_t graph = nullptr;
  SYSONE_CUDA(cudaStreamEndCapture(stream, &graph));
  SYSONE_CUDA(cudaGraphDestroy(graph));
  SYSONE_CUDA(cudaEventDestroy(event));
}

}  // namespace
}  // namespace sysone::emulation
