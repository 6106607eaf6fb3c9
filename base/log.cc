// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/check.h"

namespace sysone {
namespace {

// Written once by InitLog before threads start, read-only afterwards.
char g_process_name[32] = "sysone";
LogLevel g_least = LogLevel::kInfo;

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return "DEBUG";
    case LogLevel::kInfo: return "INFO";
    case LogLevel::kWarning: return "WARNING";
    case LogLevel::kError: return "ERROR";
  }
  return "?";
}

void WriteLine(LogLevel level, const std::string& text) {
  timeval now;
  gettimeofday(&now, nullptr);
  tm local;
  localtime_r(&now.tv_sec, &local);
  char stamp[32];
  strftime(stamp, sizeof stamp, "%m-%d %H:%M:%S", &local);
  const std::string line = Format("%s.%03ld %-7s [%s] %s\n", stamp, static_cast<long>(now.tv_usec / 1000),
                                  LevelName(level), g_process_name, text.c_str());
  // A log line that cannot be written has nowhere to be reported.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void InitLog(const std::string& name, LogLevel least) {
  snprintf(g_process_name, sizeof g_process_name, "%s", name.c_str());
  g_least = least;
}

void Log(LogLevel level, const char* format, ...) {
  if (level < g_least) return;
  va_list args;
  va_start(args, format);
  const std::string text = VFormat(format, args);
  va_end(args);
  WriteLine(level, text);
}

std::string Format(const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::string text = VFormat(format, args);
  va_end(args);
  return text;
}

std::string VFormat(const char* format, va_list args) {
  va_list measure;
  va_copy(measure, args);
  const int length = vsnprintf(nullptr, 0, format, measure);
  va_end(measure);
  if (length <= 0) return "";
  std::string text(static_cast<size_t>(length), '\0');
  vsnprintf(text.data(), text.size() + 1, format, args);
  return text;
}

namespace internal {

void CheckFailed(const char* file, int line, const char* condition, const char* format, ...) {
  va_list args;
  va_start(args, format);
  const std::string text = VFormat(format, args);
  va_end(args);
  WriteLine(LogLevel::kError, Format("%s:%d: check failed: %s: %s", file, line, condition, text.c_str()));
  std::abort();
}

}  // namespace internal
}  // namespace sysone
