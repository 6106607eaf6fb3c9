// The description of the API that clients and test tools read: GET /openapi.json.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace sysone {

// An OpenAPI 3.1 document as JSON text.
std::string OpenApiJson();

}  // namespace sysone
