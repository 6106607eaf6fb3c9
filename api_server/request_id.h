// The id under which a request is answered and logged: the client's own where it is fit for a
// header, else a new one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "api_server/http_types.h"

namespace sysone {

// The X-Request-Id header, else the body's `request_id`, else sixteen random hexadecimal digits.
// Ids that are not 1 to 256 printable ASCII characters count as absent.
std::string RequestIdOf(const HttpRequest& request);

}  // namespace sysone
