// What of CUDA is in this program, for people.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace sysone {

// Lines of text: architectures, versions of the libraries and of the driver. Needs no device.
std::string DescribeCudaKernels();

}  // namespace sysone
