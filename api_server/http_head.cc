// SPDX-License-Identifier: Apache-2.0
#include "api_server/http_head.h"

#include <algorithm>
#include <limits>

namespace sysone {
namespace {

HttpProblem Bad(std::string message) { return {400, std::move(message)}; }

bool IsToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsTokenChar);
}

std::string_view TrimBlanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Takes the line before the next CRLF off `rest`; false when a line ends in anything else.
bool TakeLine(std::string_view& rest, std::string_view& line) {
  const size_t end = rest.find('\n');
  if (end == std::string_view::npos || end == 0 || rest[end - 1] != '\r') return false;
  line = rest.substr(0, end - 1);
  rest.remove_prefix(end + 1);
  return true;
}

// Calls `each` with every element of a comma-separated list, blanks removed.
template <class Each>
void ForEachElement(std::string_view list, Each each) {
  while (true) {
    const size_t comma = list.find(',');
    each(TrimBlanks(list.substr(0, comma)));
    if (comma == std::string_view::npos) return;
    list.remove_prefix(comma + 1);
  }
}

std::optional<HttpProblem> ParseTarget(std::string_view target, const HttpLimits& limits,
                                       HttpHead& head) {
  if (target.size() > limits.max_target_bytes)
    return HttpProblem{414, "the request target is longer than " +
                                std::to_string(limits.max_target_bytes) + " bytes"};
  const bool visible =
      std::all_of(target.begin(), target.end(), [](char c) { return c > ' ' && c < '\x7f'; });
  if (!visible || target.find('#') != std::string_view::npos)
    return Bad("the request target must be visible ASCII without '#'; percent-encode the rest");
  // Absolute form, as sent through proxies: scheme and authority say nothing that we need.
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!EqualsIgnoreCase(target.substr(0, scheme.size()), scheme)) continue;
    const size_t path = target.find_first_of("/?", scheme.size());
    target = path == std::string_view::npos ? std::string_view() : target.substr(path);
    head.target = target;
    if (!target.starts_with('/')) head.target.insert(head.target.begin(), '/');
    return std::nullopt;
  }
  if (!target.starts_with('/') && target != "*")
    return Bad("the request target must begin with '/'");
  head.target = target;
  return std::nullopt;
}

std::optional<HttpProblem> ParseRequestLine(std::string_view line, const HttpLimits& limits,
                                            HttpHead& head) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last)
    return Bad("the request line must be METHOD TARGET HTTP/1.1");
  head.method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  constexpr size_t kLongestMethod = 32;  // the longest registered one has 17 characters
  if (!IsToken(head.method) || head.method.size() > kLongestMethod)
    return Bad("the request line must begin with a method");
  if (version != "HTTP/1.1" && version != "HTTP/1.0")
    return Bad("the protocol must be HTTP/1.1 or HTTP/1.0");
  head.http_1_0 = version == "HTTP/1.0";
  return ParseTarget(target, limits, head);
}

std::optional<HttpProblem> ParseField(std::string_view line, const HttpLimits& limits,
                                      HttpHead& head) {
  if (line.size() > limits.max_header_bytes)
    return HttpProblem{
        431, "a header field is longer than " + std::to_string(limits.max_header_bytes) + " bytes"};
  if (head.headers.fields().size() >= limits.max_headers)
    return HttpProblem{
        431, "there are more than " + std::to_string(limits.max_headers) + " header fields"};
  const size_t colon = line.find(':');
  // A name with a blank before the colon and a folded line both fail the token test.
  if (colon == std::string_view::npos || !IsToken(line.substr(0, colon)))
    return Bad("a header field must be NAME: VALUE on one line");
  const std::string_view value = TrimBlanks(line.substr(colon + 1));
  const bool clean = std::all_of(value.begin(), value.end(), [](char c) {
    return c == '\t' || (static_cast<unsigned char>(c) >= ' ' && c != '\x7f');
  });
  if (!clean) return Bad("a header value holds a control character");
  head.headers.Add(std::string(line.substr(0, colon)), std::string(value));
  return std::nullopt;
}

// RFC 9112 section 6: how long the body is. Anything ambiguous is refused rather than interpreted.
std::optional<HttpProblem> ReadFraming(HttpHead& head) {
  const std::string* length = head.headers.Find("Content-Length");
  const std::string* coding = head.headers.Find("Transfer-Encoding");
  if (length != nullptr && coding != nullptr)
    return Bad("Content-Length and Transfer-Encoding exclude each other");
  if (coding != nullptr) {
    if (head.http_1_0 || head.headers.Count("Transfer-Encoding") != 1 ||
        !EqualsIgnoreCase(*coding, "chunked"))
      return Bad("the only Transfer-Encoding is one 'chunked', in HTTP/1.1");
    head.chunked = true;
  }
  if (length != nullptr) {
    const bool digits = !length->empty() && std::all_of(length->begin(), length->end(), [](char c) {
      return c >= '0' && c <= '9';
    });
    if (!digits || head.headers.Count("Content-Length") != 1)
      return Bad("Content-Length must be one decimal number");
    for (const char c : *length) {
      constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
      const auto digit = static_cast<uint64_t>(c - '0');
      head.content_length =
          head.content_length > (kMost - digit) / 10 ? kMost : head.content_length * 10 + digit;
      if (head.content_length == kMost) break;
    }
  }
  return std::nullopt;
}

void ReadConnection(HttpHead& head) {
  bool close = false;
  bool keep = false;
  for (const auto& [name, value] : head.headers.fields()) {
    if (!EqualsIgnoreCase(name, "Connection")) continue;
    ForEachElement(value, [&](std::string_view element) {
      close |= EqualsIgnoreCase(element, "close");
      keep |= EqualsIgnoreCase(element, "keep-alive");
    });
  }
  head.keep_alive = !close && (keep || !head.http_1_0);
  const std::string* expect = head.headers.Find("Expect");
  head.expects_continue =
      expect != nullptr && !head.http_1_0 && EqualsIgnoreCase(*expect, "100-continue");
}

}  // namespace

bool IsTokenChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         (c != '\0' && std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos);
}

std::optional<HttpProblem> ParseHttpHead(std::string_view text, const HttpLimits& limits,
                                         HttpHead& head) {
  head = HttpHead();
  std::string_view line;
  if (!TakeLine(text, line)) return Bad("lines of the head must end in CR LF");
  if (auto problem = ParseRequestLine(line, limits, head)) return problem;
  while (true) {
    if (!TakeLine(text, line)) return Bad("lines of the head must end in CR LF");
    if (line.empty()) break;
    if (auto problem = ParseField(line, limits, head)) return problem;
  }
  const size_t hosts = head.headers.Count("Host");
  if (hosts > 1 || (hosts == 0 && !head.http_1_0))
    return Bad("an HTTP/1.1 request carries exactly one Host header");
  if (auto problem = ReadFraming(head)) return problem;
  ReadConnection(head);
  return std::nullopt;
}

}  // namespace sysone
