// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device_facts.h"

#include <cuda_runtime.h>

namespace sysone {
namespace {

bool Reaches(int from, int to) {
  int can = 0;
  return cudaDeviceCanAccessPeer(&can, from, to) == cudaSuccess && can != 0;
}

}  // namespace

int VisibleCudaDevices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // of no consequence for what comes
  return 0;
}

CudaDeviceFacts FactsOfCudaDevice(int device) {
  CudaDeviceFacts facts;
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, device) == cudaSuccess) facts.name = properties.name;
  char bus[32] = "";
  if (cudaDeviceGetPCIBusId(bus, sizeof bus, device) == cudaSuccess) facts.pci_bus_id = bus;
  return facts;
}

bool CudaDevicesReachEachOther(int a, int b) { return Reaches(a, b) && Reaches(b, a); }

}  // namespace sysone
