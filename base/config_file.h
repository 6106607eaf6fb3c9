// The file of --config: flags as keys, in the small part of YAML that this needs. Anything beyond
// it is an error with its line, never a guess:
//   port: 8000                     # a value, plain or quoted
//   api-key: [first, "second"]     # a list in one line
//   allowed-origins:               # or one item a line
//     - https://example.org
//   default-chat-template-kwargs: {"key": true}   # a JSON object, kept as text
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sysone {

struct ConfigEntry {
  std::string key;
  std::vector<std::string> values;  // one for a plain value
  int line = 0;                     // counted from 1
};

// kInvalidArgument: what is wrong and in which line.
Result<std::vector<ConfigEntry>> ParseConfig(std::string_view text);

}  // namespace sysone
