// The strict reading of a request's head. It refuses everything that two HTTP parsers could
// understand differently (request smuggling), so nothing behind it has to be careful. Pure: bytes
// in, a head or a problem out.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api_server/http_limits.h"
#include "api_server/http_types.h"

namespace sysone {

struct HttpHead {
  std::string method;  // a token, as sent
  std::string target;  // "/path?query" or "*"; of an absolute target only this part; visible ASCII
                       // without '#'
  bool http_1_0 = false;
  HttpHeaders headers;

  // What the headers say about the connection and the body.
  bool keep_alive = true;
  bool expects_continue = false;
  bool chunked = false;
  uint64_t content_length = 0;  // 0 when absent or chunked; the largest value when it does not fit
};

// Reads `text`, a whole head with the empty line that ends it, into `head`. On a problem `head` is
// unusable.
std::optional<HttpProblem> ParseHttpHead(std::string_view text, const HttpLimits& limits,
                                         HttpHead& head);

// True for a character of an RFC 9110 token (method, header name).
bool IsTokenChar(char c);

}  // namespace sysone
