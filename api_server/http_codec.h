// The one place that touches cpp-httplib. Requests were judged by our own strict parser before
// (http_head.h), so the library is shown a bare request line only: none of its header handling
// (ranges, percent-decoded values, Expect, WebSocket upgrades, body lengths) can be reached by a
// client. It decodes the target and writes the response.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "api_server/http_head.h"
#include "api_server/http_types.h"

namespace sysone {

// The longest target that the codec takes; HttpLimits::max_target_bytes stays below.
inline constexpr size_t kMaxCodecTargetBytes = 512u << 10;

// One thread at a time; each pool thread has its own.
class HttpCodec {
 public:
  HttpCodec();
  ~HttpCodec();

  struct Answer {
    HttpResponse response;
    bool keep_alive = true;  // false: `Connection: close`
  };
  // Gets the percent-decoded path and the raw query; must not throw.
  using Respond = std::function<Answer(std::string path, std::string query)>;

  // Calls `respond` once and returns its answer as bytes for the wire: no body for HEAD, 204 and
  // 304.
  std::string Exchange(const HttpHead& head, const Respond& respond);

 private:
  class Protocol;
  std::unique_ptr<Protocol> protocol_;
};

}  // namespace sysone
