// The one place that touches cpp-httplib. Requests were judged by our own strict parser before (http_head.h), so the library is
// shown the path of a target only, to decode: none of its header handling (ranges, Expect, WebSocket upgrades, body lengths)
// can be reached by a client. Responses are written here. Pure.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "api_server/http_types.h"

namespace sysone {

// Takes a target apart: the percent-decoded path, and the query as sent.
void DecodeTarget(std::string_view target, std::string& path, std::string& query);

// What the request says about how its response is written.
struct ResponseFraming {
  bool head = false;       // the method was HEAD: no body
  bool http_1_0 = false;   // keep-alive has to be said
  bool keep_alive = true;  // false: `Connection: close`
};

// The bytes for the wire: no body for HEAD, 204 and 304.
std::string WriteResponse(const HttpResponse& response, const ResponseFraming& framing);

}  // namespace sysone
