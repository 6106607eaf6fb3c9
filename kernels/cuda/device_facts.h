// What can be told of the devices before a backend is made on one of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace sysone {

// How many this process sees; none also where there is no driver.
int VisibleCudaDevices();

struct CudaDeviceFacts {
  std::string name;        // "NVIDIA H200"
  std::string pci_bus_id;  // "0000:41:00.0"; "" where the driver does not tell
};
// `device` is one of those that are visible.
CudaDeviceFacts FactsOfCudaDevice(int device);

// Both ways, without a detour through the host's memory.
bool CudaDevicesReachEachOther(int a, int b);

}  // namespace sysone
