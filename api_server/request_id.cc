// SPDX-License-Identifier: Apache-2.0
#include "api_server/request_id.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "base/json.h"
#include "base/log.h"

namespace sysone {
namespace {

constexpr size_t kMaxIdBytes = 256;

bool IsFit(const std::string& id) {
  // Outer blanks would not survive in a header.
  return !id.empty() && id.size() <= kMaxIdBytes && id.front() != ' ' && id.back() != ' ' &&
         std::all_of(id.begin(), id.end(), [](char c) { return c >= ' ' && c < '\x7f'; });
}

uint64_t RandomBits() {
  uint64_t bits = 0;
  while (getrandom(&bits, sizeof bits, 0) != sizeof bits)
    SYSONE_CHECK(errno == EINTR, "getrandom: %s", std::strerror(errno));
  return bits;
}

// Asks the kernel once a thread, not once a request. From there on splitmix64, which repeats no number in 2^64 calls.
std::string NewId() {
  thread_local uint64_t state = RandomBits();
  uint64_t bits = state += 0x9E3779B97F4A7C15;
  bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9;
  bits = (bits ^ bits >> 27) * 0x94D049BB133111EB;
  bits ^= bits >> 31;
  return Format("%016llx", static_cast<unsigned long long>(bits));
}

}  // namespace

std::string RequestIdOf(const HttpRequest& request) {
  const std::string* header = request.headers.Find("X-Request-Id");
  if (header != nullptr && IsFit(*header)) return *header;
  // Few bodies name an id, so the others are not parsed for it.
  if (request.body.find("\"request_id\"") != std::string::npos) {
    const Result<Json> body = Json::Parse(request.body);
    const Json* id = body.ok() ? body->Find("request_id") : nullptr;
    if (id != nullptr && id->is_string() && IsFit(id->string())) return id->string();
  }
  return NewId();
}

}  // namespace sysone
