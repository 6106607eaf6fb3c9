// Errors as values: one numbered table of codes, a Status, and Result<T>.
// Exceptions never cross a module's border; third-party throws are turned into a Status where they enter.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace sysone {

// The numbers are part of the arena's layout (a failed slot carries one): append, never renumber.
enum class Code : int32_t {
  kOk = 0,
  kMalformed = 1,         // not JSON, wrong content type, invalid UTF-8            → HTTP 400
  kInvalidArgument = 2,   // well formed, but breaks a rule                         → 422
  kNotFound = 3,          // unknown model, path or file                            → 404
  kTooLarge = 4,          // body or prompt over its limit                          → 413
  kUnauthorized = 5,      // wrong key                                              → 401
  kForbidden = 6,         // missing key, origin not allowed                        → 403
  kRateLimited = 7,       //                                                        → 429
  kUnavailable = 8,       // queue full, draining, no group can take the work       → 503
  kDeadlineExceeded = 9,  // accepted, but its time ran out                         → 504
  kUnimplemented = 10,    // the served model cannot do this                        → 501
  kInternal = 11,         // our fault                                              → 500
  kCancelled = 12,        // the client went away; nobody reads the answer
  kUnsupported = 13,      // a model file uses something that we do not support (start-up)
  kCorrupt = 14,          // a file is truncated or contradicts itself (start-up)
  kOutOfMemory = 15,      // the machine lacks memory for what was asked (start-up)
};

// Short name of a code for logs: "invalid_argument".
const char* CodeName(Code code);

// A code and, unless ok, a message for a person that names the field or file and says what to change.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same code with `context` and ": " put before the message.
  Status WithContext(const std::string& context) const {
    return ok() ? *this : Status(code_, context + ": " + message_);
  }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// Status with a printf-style message.
[[gnu::format(printf, 2, 3)]] Status Error(Code code, const char* format, ...);

// A value or the Status that says why there is none. Reading the value of a failed Result aborts.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : value_(std::move(status)) {
    SYSONE_CHECK(!std::get<Status>(value_).ok(), "a Result without a value needs an error");
  }

  bool ok() const { return std::holds_alternative<T>(value_); }
  Status status() const { return ok() ? Status() : std::get<Status>(value_); }

  T& value() & {
    SYSONE_CHECK(ok(), "value() of a failed Result: %s", std::get<Status>(value_).message().c_str());
    return std::get<T>(value_);
  }
  const T& value() const& { return const_cast<Result*>(this)->value(); }
  T&& value() && { return std::move(value()); }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> value_;
};

}  // namespace sysone

// Returns from the calling function when `expr`, a Status, is not ok.
#define SYSONE_RETURN_IF_ERROR(expr)                              \
  do {                                                            \
    if (::sysone::Status status_ = (expr); !status_.ok()) return status_; \
  } while (false)

// Declares or assigns `lhs` from a Result, or returns its Status.
#define SYSONE_ASSIGN_OR_RETURN(lhs, expr) \
  SYSONE_ASSIGN_OR_RETURN_IMPL_(SYSONE_CONCAT_(result_, __LINE__), lhs, expr)
#define SYSONE_ASSIGN_OR_RETURN_IMPL_(result, lhs, expr) \
  auto result = (expr);                                  \
  if (!result.ok()) return result.status();              \
  lhs = std::move(result).value()
#define SYSONE_CONCAT_(a, b) SYSONE_CONCAT_IMPL_(a, b)
#define SYSONE_CONCAT_IMPL_(a, b) a##b
