// SPDX-License-Identifier: Apache-2.0
#include "tests/api_server/test_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>

#include "base/check.h"

namespace sysone {
namespace {

// Longer than any answer takes on a loaded machine; a test that needs it has failed.
constexpr int kPatienceMs = 10'000;

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace

Listener ListenOnLoopback() {
  Listener listener{UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))};
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  SYSONE_CHECK(bind(listener.socket.get(), generic, size) == 0, "bind: %s", std::strerror(errno));
  SYSONE_CHECK(listen(listener.socket.get(), 1024) == 0, "listen: %s", std::strerror(errno));
  SYSONE_CHECK(getsockname(listener.socket.get(), generic, &size) == 0, "getsockname");
  listener.port = ntohs(address.sin_port);
  return listener;
}

TestClient::TestClient(uint16_t port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const sockaddr_in address = Loopback(port);
  SYSONE_CHECK(
      connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
      "connect: %s", std::strerror(errno));
}

bool TestClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

bool TestClient::Fill() {
  pollfd ready{socket_.get(), POLLIN, 0};
  if (poll(&ready, 1, kPatienceMs) <= 0) return false;
  char bytes[16384];
  const ssize_t count = recv(socket_.get(), bytes, sizeof bytes, 0);
  if (count <= 0) return false;
  buffer_.append(bytes, static_cast<size_t>(count));
  return true;
}

ClientResponse TestClient::Read(bool head_request) {
  ClientResponse response;
  size_t end;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos)
    if (!Fill()) return {};
  std::string_view head = std::string_view(buffer_).substr(0, end + 2);
  bool first = true;
  while (!head.empty()) {
    const size_t line_end = head.find("\r\n");
    const std::string_view line = head.substr(0, line_end);
    head.remove_prefix(line_end + 2);
    if (first) {
      if (!line.starts_with("HTTP/1.1 ") || line.size() < 13) return {};
      response.status = std::atoi(std::string(line.substr(9, 3)).c_str());
      response.reason = line.substr(13);
      first = false;
      continue;
    }
    const size_t colon = line.find(": ");
    if (colon == std::string_view::npos) return {};
    response.headers.Add(std::string(line.substr(0, colon)), std::string(line.substr(colon + 2)));
  }
  buffer_.erase(0, end + 4);
  const size_t length = head_request ? 0
                                     : static_cast<size_t>(std::strtoull(
                                           response.Header("Content-Length").c_str(), nullptr, 10));
  while (buffer_.size() < length)
    if (!Fill()) return {};
  response.body = buffer_.substr(0, length);
  buffer_.erase(0, length);
  return response;
}

bool TestClient::AtEnd() {
  if (!buffer_.empty()) return false;
  pollfd ready{socket_.get(), POLLIN, 0};
  if (poll(&ready, 1, kPatienceMs) <= 0) return false;
  char byte;
  const ssize_t count = recv(socket_.get(), &byte, 1, 0);
  return count == 0 || (count < 0 && errno == ECONNRESET);
}

void TestClient::HalfClose() { shutdown(socket_.get(), SHUT_WR); }

std::string Get(std::string_view path, std::string_view extra_headers) {
  std::string request = "GET ";
  request.append(path).append(" HTTP/1.1\r\nHost: test\r\n").append(extra_headers).append("\r\n");
  return request;
}

std::string Post(std::string_view path, std::string_view body, std::string_view extra_headers) {
  std::string request = "POST ";
  request.append(path).append(" HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n");
  request.append("Content-Length: ").append(std::to_string(body.size())).append("\r\n");
  return request.append(extra_headers).append("\r\n").append(body);
}

}  // namespace sysone
