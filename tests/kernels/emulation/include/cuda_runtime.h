// Stands in for CUDA's header of this name where a CPU plays the device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/kernels/emulation/device_functions.h"
#include "tests/kernels/emulation/runtime_api.h"
#include "tests/kernels/emulation/vector_types.h"
