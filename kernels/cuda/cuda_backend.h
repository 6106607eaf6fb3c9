// The backend of NVIDIA GPUs: matrix products by cuBLASLt, everything else by kernels of our own. Weights, activations, keys and
// values live on one device; host memory is touched at the ends of a pass alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/status.h"
#include "kernels/backend.h"

namespace sysone {

// `options.dtype`: auto (bfloat16), bfloat16, float32, int8, fp8. kUnsupported names what the device lacks; kUnavailable says
// that there is no device, or that it is taken. One backend a device and process.
Result<std::unique_ptr<Backend>> MakeCudaBackend(const BackendOptions& options);

}  // namespace sysone
