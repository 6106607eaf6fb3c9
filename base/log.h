// One line a message on standard error: time, level, process name, text. printf-style, because g++ 12 has no std::format.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdarg>
#include <string>

namespace sysone {

// In rising order; a line below the level that InitLog was given is dropped.
enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

// Called once in main, before threads start. `name` stands in every line, for example "worker-0".
void InitLog(const std::string& name, LogLevel least);

// Any thread. One write(2) a line, so lines of several processes do not mix.
[[gnu::format(printf, 2, 3)]] void Log(LogLevel level, const char* format, ...);

// printf into a std::string.
[[gnu::format(printf, 1, 2)]] std::string Format(const char* format, ...);
std::string VFormat(const char* format, va_list args);

}  // namespace sysone

#define SYSONE_DEBUG(...) ::sysone::Log(::sysone::LogLevel::kDebug, __VA_ARGS__)
#define SYSONE_INFO(...) ::sysone::Log(::sysone::LogLevel::kInfo, __VA_ARGS__)
#define SYSONE_WARNING(...) ::sysone::Log(::sysone::LogLevel::kWarning, __VA_ARGS__)
#define SYSONE_ERROR(...) ::sysone::Log(::sysone::LogLevel::kError, __VA_ARGS__)
