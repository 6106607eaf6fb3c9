// What the device can do, measured: the two rates that a pass is compared with.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace sysone {

// Bytes a second, read and written both counted, of copies of 4 GiB on the device (or a quarter of its free memory).
double CopyBandwidth();
// Floating-point operations a second of 8192³ bfloat16 products of random values by cuBLASLt.
double ProductRate();

}  // namespace sysone
