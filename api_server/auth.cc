// SPDX-License-Identifier: Apache-2.0
#include "api_server/auth.h"

#include <utility>

#include "base/check.h"

namespace sysone {
namespace {

bool NeedsKey(std::string_view path) { return path == "/v1" || path.starts_with("/v1/"); }

// The token of "Bearer TOKEN"; empty when it is something else.
std::string_view BearerToken(std::string_view value) {
  constexpr std::string_view kScheme = "Bearer ";
  if (!EqualsIgnoreCase(value.substr(0, kScheme.size()), kScheme)) return {};
  value.remove_prefix(kScheme.size());
  while (value.starts_with(' ')) value.remove_prefix(1);
  return value;
}

}  // namespace

bool EqualsInConstantTime(std::string_view given, std::string_view secret) {
  if (secret.empty()) return given.empty();
  // The secret is walked round and round, so that its length does not show in the time either.
  // `volatile` keeps the compiler from leaving early once a difference is known.
  volatile unsigned char difference = given.size() != secret.size();
  size_t j = 0;
  for (const char c : given) {
    difference = static_cast<unsigned char>(difference | (c ^ secret[j]));
    j = j + 1 == secret.size() ? 0 : j + 1;
  }
  return difference == 0;
}

KeyCheck::KeyCheck(std::vector<std::string> keys) : keys_(std::move(keys)) {
  for (const std::string& key : keys_)
    SYSONE_CHECK(!key.empty(), "an empty key would admit everybody");
}

KeyCheck::Verdict KeyCheck::Check(const HttpRequest& request) const {
  if (keys_.empty() || !NeedsKey(request.path)) return Verdict::kPass;
  const std::string* header = request.headers.Find("Authorization");
  const std::string_view token = header == nullptr ? std::string_view() : BearerToken(*header);
  if (token.empty()) return Verdict::kMissing;
  // Two of them could be judged differently by a proxy in front of us.
  if (request.headers.Count("Authorization") > 1) return Verdict::kWrong;
  bool right = false;
  for (const std::string& key : keys_) right |= EqualsInConstantTime(token, key);
  return right ? Verdict::kPass : Verdict::kWrong;
}

}  // namespace sysone
