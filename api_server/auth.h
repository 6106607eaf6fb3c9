// API keys: which requests need one, and whether theirs is right. Pure.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api_server/http_types.h"

namespace sysone {

// Takes time that depends on the length of `given` alone, so that no key can be guessed bit by bit.
bool EqualsInConstantTime(std::string_view given, std::string_view secret);

// Immutable; any thread.
class KeyCheck {
 public:
  enum class Verdict {
    kPass,
    kMissing,  // no Bearer token at all → 403
    kWrong,    // → 401
  };

  // Without keys everything passes. Keys are non-empty.
  explicit KeyCheck(std::vector<std::string> keys);

  // As in vLLM, a key is asked for below /v1; health, metrics and the API's description are open.
  Verdict Check(const HttpRequest& request) const;

 private:
  const std::vector<std::string> keys_;
};

}  // namespace sysone
