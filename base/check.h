// SYSONE_CHECK: for our own mistakes and for a machine that fails mid-run. Prints where, what and why, then aborts;
// a half-broken process is worse than a dead one, because the router replaces dead ones.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace sysone::internal {
// Logs what did not hold, and where, and aborts. For SYSONE_CHECK alone.
[[noreturn]] [[gnu::format(printf, 4, 5)]] void CheckFailed(const char* file, int line, const char* condition,
                                                            const char* format, ...);
}  // namespace sysone::internal

// SYSONE_CHECK(condition, "format", args…): always on, also in Release.
#define SYSONE_CHECK(condition, ...)                                                       \
  do {                                                                                     \
    if (!(condition)) [[unlikely]]                                                         \
      ::sysone::internal::CheckFailed(__FILE__, __LINE__, #condition, __VA_ARGS__); \
  } while (false)
