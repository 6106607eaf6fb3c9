// SPDX-License-Identifier: Apache-2.0
#include "api_server/http_codec.h"

#include <time.h>

// Our own limits come first (HttpLimits); the library's must never be the ones that refuse.
#define CPPHTTPLIB_REQUEST_URI_MAX_LENGTH (1 << 20)
#define CPPHTTPLIB_MAX_LINE_LENGTH (1 << 21)
#include <httplib.h>

#include <cstring>

#include "base/check.h"

namespace sysone {
namespace {

// A request line to read and a response to collect; never waits.
class MemoryStream final : public httplib::Stream {
 public:
  explicit MemoryStream(std::string input) : input_(std::move(input)) {}

  bool is_readable() const override { return read_ < input_.size(); }
  bool wait_readable() const override { return true; }
  bool wait_writable() const override { return true; }
  ssize_t read(char* to, size_t size) override {
    const size_t count = std::min(size, input_.size() - read_);
    std::memcpy(to, input_.data() + read_, count);
    read_ += count;
    return static_cast<ssize_t>(count);
  }
  ssize_t write(const char* from, size_t size) override {
    output_.append(from, size);
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return INVALID_SOCKET; }
  time_t duration() const override { return 0; }

  std::string TakeOutput() { return std::move(output_); }

 private:
  const std::string input_;
  size_t read_ = 0;
  std::string output_;
};

}  // namespace

class HttpCodec::Protocol final : public httplib::Server {
 public:
  Protocol() {
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      Fill(request, response);
      return HandlerResponse::Handled;
    });
    set_post_routing_handler(
        [this](const httplib::Request&, httplib::Response& response) { FinishHeaders(response); });
  }

  std::string Exchange(const HttpHead& head, const Respond& respond) {
    respond_ = &respond;
    http_1_0_ = head.http_1_0;
    // The library only needs to know whether a body is written; with GET it looks for no request
    // body either.
    MemoryStream stream((head.method == "HEAD" ? "HEAD " : "GET ") + head.target +
                        " HTTP/1.1\r\n\r\n");
    bool closed = false;
    process_request(stream, "", 0, "", 0, false, closed, nullptr);
    SYSONE_CHECK(respond_ == nullptr,
                 "the library refused a request line that our parser let through");
    return stream.TakeOutput();
  }

 private:
  void Fill(const httplib::Request& request, httplib::Response& response) {
    const size_t mark = request.target.find('?');
    const Respond& respond = *std::exchange(respond_, nullptr);
    Answer answer =
        respond(request.path, mark == std::string::npos ? "" : request.target.substr(mark + 1));
    keep_alive_ = answer.keep_alive;
    response.status = answer.response.status;
    for (const auto& [name, value] : answer.response.headers.fields())
      response.set_header(name, value);
    if (HasBody(response.status))
      response.set_content(std::move(answer.response.body), answer.response.content_type);
  }

  void FinishHeaders(httplib::Response& response) const {
    for (const char* name : {"Connection", "Keep-Alive", "Accept-Ranges"})
      response.headers.erase(name);
    if (!HasBody(response.status)) response.headers.erase("Content-Length");
    if (!keep_alive_) {
      response.set_header("Connection", "close");
    } else if (http_1_0_) {
      response.set_header("Connection", "keep-alive");
    }
    char date[64];
    const time_t now = time(nullptr);
    tm parts;
    gmtime_r(&now, &parts);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &parts);
    response.set_header("Date", date);
  }

  static bool HasBody(int status) { return status >= 200 && status != 204 && status != 304; }

  // Of the exchange that is going on.
  const Respond* respond_ = nullptr;
  bool http_1_0_ = false;
  bool keep_alive_ = true;
};

HttpCodec::HttpCodec() : protocol_(std::make_unique<Protocol>()) {}
HttpCodec::~HttpCodec() = default;

std::string HttpCodec::Exchange(const HttpHead& head, const Respond& respond) {
  return protocol_->Exchange(head, respond);
}

}  // namespace sysone
