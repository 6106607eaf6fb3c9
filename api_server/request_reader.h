// Collects the bytes of one connection into whole requests. Pure: it knows no socket and no clock,
// so every way in which bytes may arrive is tested without either.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "api_server/chunked_body.h"
#include "api_server/http_head.h"
#include "api_server/http_limits.h"

namespace sysone {

class RequestReader {
 public:
  enum class State {
    kIdle,      // no byte of the next request yet
    kHead,      // part of a head
    kBody,      // head() is known, its body is incomplete
    kComplete,  // head() and body() are whole
    kFailed,    // problem() says why; the connection cannot go on
  };

  // `limits` outlives the reader.
  explicit RequestReader(const HttpLimits& limits) : limits_(limits) {}

  // Adds received bytes. In kComplete they wait for the next request.
  State Feed(std::string_view bytes);
  // After kComplete: forgets the request and goes on with what came behind it.
  State Next();

  State state() const { return state_; }
  // From kBody on; also in kFailed when has_head().
  HttpHead& head() { return head_; }
  bool has_head() const { return has_head_; }
  std::string& body() { return body_; }
  const HttpProblem& problem() const { return problem_; }
  // Memory held for the request and what came behind it.
  size_t buffered_bytes() const { return buffer_.capacity() + body_.capacity(); }

 private:
  State Advance();
  State FindHead();
  State ReadBody();
  State Fail(HttpProblem problem);
  State FailTooLarge();

  const HttpLimits& limits_;
  State state_ = State::kIdle;
  std::string buffer_;  // received, not yet taken into head_ or body_
  size_t scanned_ = 0;  // of buffer_: searched for the head's end
  size_t line_start_ = 0;
  bool has_head_ = false;
  HttpHead head_;
  std::optional<ChunkedBody> chunks_;
  std::string body_;
  HttpProblem problem_;
};

}  // namespace sysone
