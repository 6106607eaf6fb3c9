// SPDX-License-Identifier: Apache-2.0
#include "api_server/http_codec.h"

#include <httplib.h>
#include <time.h>

#include <algorithm>
#include <charconv>

#include "api_server/http_head.h"

namespace sysone {
namespace {

bool HasBody(int status) { return status >= 200 && status != 204 && status != 304; }

void AppendNumber(std::string& out, size_t number) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

// Leaves out a field that would end its line and so split the response.
void AppendField(std::string& out, std::string_view name, std::string_view value) {
  constexpr std::string_view kEndsALine("\r\n\0", 3);
  if (value.find_first_of(kEndsALine) != std::string_view::npos) return;
  if (name.empty() || !std::all_of(name.begin(), name.end(), IsTokenChar)) return;
  out.append(name).append(": ").append(value).append("\r\n");
}

// "Mon, 30 Nov 2026 11:00:00 GMT". Written once a second, because that is all it tells.
const std::string& DateNow() {
  thread_local time_t written = 0;
  thread_local std::string text;
  const time_t now = time(nullptr);
  if (now != written) {
    char date[64];
    tm parts;
    gmtime_r(&now, &parts);
    text.assign(date, strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &parts));
    written = now;
  }
  return text;
}

}  // namespace

void DecodeTarget(std::string_view target, std::string& path, std::string& query) {
  const size_t mark = target.find('?');
  query = mark == std::string_view::npos ? std::string_view() : target.substr(mark + 1);
  path = target.substr(0, mark);
  if (path.find('%') != std::string::npos) path = httplib::decode_path_component(path);
}

std::string WriteResponse(const HttpResponse& response, const ResponseFraming& framing) {
  constexpr size_t kUsualHead = 512;
  const bool has_body = HasBody(response.status);
  std::string out;
  out.reserve(kUsualHead + (framing.head ? 0 : response.body.size()));
  out += "HTTP/1.1 ";
  AppendNumber(out, static_cast<size_t>(response.status));
  out.append(" ").append(httplib::status_message(response.status)).append("\r\n");
  for (const auto& [name, value] : response.headers.fields()) AppendField(out, name, value);
  AppendField(out, "Date", DateNow());
  if (!framing.keep_alive) {
    AppendField(out, "Connection", "close");
  } else if (framing.http_1_0) {
    AppendField(out, "Connection", "keep-alive");
  }
  if (has_body) {
    AppendField(out, "Content-Type", response.content_type);
    out += "Content-Length: ";
    AppendNumber(out, response.body.size());
    out += "\r\n";
  }
  out += "\r\n";
  if (has_body && !framing.head) out += response.body;
  return out;
}

}  // namespace sysone
