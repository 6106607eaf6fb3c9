// What a sysone program's exit status tells the one who started it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

namespace sysone {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;  // something broke; another try may succeed
inline constexpr int kExitUsage = 2;    // wrong flags
inline constexpr int kExitSetup =
    3;  // the model, a file or the machine does not allow it: another try fails the same way

// What main returns for the Status it ends with, so that the router knows whether to try again.
inline int ExitStatusOf(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return kExitOk;
    case Code::kInvalidArgument:
    case Code::kNotFound:
    case Code::kUnsupported:
    case Code::kCorrupt:
    case Code::kOutOfMemory:
      return kExitSetup;
    default:
      return kExitFailure;
  }
}

}  // namespace sysone
