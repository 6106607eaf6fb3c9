// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <cstdarg>

#include "base/log.h"

namespace sysone {

const char* CodeName(Code code) {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kMalformed: return "malformed";
    case Code::kInvalidArgument: return "invalid_argument";
    case Code::kNotFound: return "not_found";
    case Code::kTooLarge: return "too_large";
    case Code::kUnauthorized: return "unauthorized";
    case Code::kForbidden: return "forbidden";
    case Code::kRateLimited: return "rate_limited";
    case Code::kUnavailable: return "unavailable";
    case Code::kDeadlineExceeded: return "deadline_exceeded";
    case Code::kUnimplemented: return "unimplemented";
    case Code::kInternal: return "internal";
    case Code::kCancelled: return "cancelled";
    case Code::kUnsupported: return "unsupported";
    case Code::kCorrupt: return "corrupt";
    case Code::kOutOfMemory: return "out_of_memory";
  }
  return "unknown";
}

Status Error(Code code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::string message = VFormat(format, args);
  va_end(args);
  return Status(code, std::move(message));
}

}  // namespace sysone
