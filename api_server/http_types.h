// What the HTTP layer and the application exchange: one whole request in, one whole response out.
// Free of sockets and of any HTTP library, so handlers are tested without either.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sysone {

// ASCII letters compare equal in either case, as header names must.
inline bool EqualsIgnoreCase(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (lower(a[i]) != lower(b[i])) return false;
  return true;
}

// Header fields in the order of arrival. A request has few, so looking along them beats a map.
class HttpHeaders {
 public:
  using Field = std::pair<std::string, std::string>;

  void Add(std::string name, std::string value) {
    fields_.emplace_back(std::move(name), std::move(value));
  }
  // Replaces every field of that name by one.
  void Set(std::string_view name, std::string value) {
    std::erase_if(fields_, [&](const Field& f) { return EqualsIgnoreCase(f.first, name); });
    Add(std::string(name), std::move(value));
  }
  // The first field's value; nullptr when absent.
  const std::string* Find(std::string_view name) const {
    for (const auto& [key, value] : fields_)
      if (EqualsIgnoreCase(key, name)) return &value;
    return nullptr;
  }
  size_t Count(std::string_view name) const {
    size_t count = 0;
    for (const auto& field : fields_) count += EqualsIgnoreCase(field.first, name);
    return count;
  }
  const std::vector<Field>& fields() const { return fields_; }

 private:
  std::vector<Field> fields_;
};

// A request that has passed the protocol's checks: header names and values hold no CR, LF or NUL.
struct HttpRequest {
  std::string method;       // as sent, upper case for the known ones
  std::string path;         // percent-decoded, without the query; may hold any byte
  std::string query;        // as sent, without the '?'
  HttpHeaders headers;      // values as sent, outer blanks removed
  std::string body;         // whole, de-chunked and inflated
  std::string peer;         // "address:port" of the client, for logs
  int64_t received_us = 0;  // MonotonicUs() at the request's first byte: deadlines count from here
  // True once nobody waits for the answer any more: the client closed (or half-closed) its side, or
  // the server is being stopped. Any thread, but only until the answer is given. One system call:
  // ask it between steps.
  std::function<bool()> client_gone = [] { return false; };
};

struct HttpResponse {
  int status = 200;
  HttpHeaders
      headers;  // without Content-Length, Content-Type and Connection: the server writes those
  std::string body;
  std::string content_type = "application/json";
};

// A request that never reaches the handler.
struct HttpProblem {
  int status = 400;       // 400, 408, 413, 414, 415, 431 or 503
  std::string message;    // for the client: says what was wrong and what to change
  int retry_after_s = 0;  // above 0: put a Retry-After header
};

// Makes the response for a problem. `head` is the request as far as it is known (no body), or null
// when not even its head could be read. Runs on any of the server's threads and must not block.
using HttpProblemHandler = std::function<HttpResponse(const HttpProblem&, const HttpRequest* head)>;

}  // namespace sysone
