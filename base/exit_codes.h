// What a sysone program's exit status tells the one who started it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace sysone {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;  // something broke; another try may succeed
inline constexpr int kExitUsage = 2;    // wrong flags
inline constexpr int kExitSetup = 3;    // the model, a file or the machine does not allow it: another try fails the same way

}  // namespace sysone
