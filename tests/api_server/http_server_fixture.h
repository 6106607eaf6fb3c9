// A server on a free port whose handler says what it received.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "api_server/http_server.h"
#include "tests/api_server/test_client.h"

namespace sysone {

// Threads wait here until the test lets them go.
class Latch {
 public:
  void Open() {
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

// "METHOD path?query body"
inline HttpResponse Echo(const HttpRequest& request) {
  HttpResponse response;
  response.body = request.method + " " + request.path + "?" + request.query + " " + request.body;
  response.content_type = "text/plain";
  return response;
}

inline HttpResponse SayProblem(const HttpProblem& problem, const HttpRequest* head) {
  HttpResponse response;
  response.status = problem.status;
  response.body = R"({"problem":")" + problem.message + R"(","path":")" +
                  (head == nullptr ? "unknown" : head->path) + R"("})";
  if (problem.retry_after_s > 0)
    response.headers.Set("Retry-After", std::to_string(problem.retry_after_s));
  return response;
}

class HttpServerTest : public ::testing::Test {
 protected:
  // A handler that answers at once, and may block: on a pool thread, unless `work` says otherwise.
  void Start(std::function<HttpResponse(const HttpRequest&)> answer = Echo, LoopWork work = {}) {
    StartHandler(Blocking(std::move(answer)), std::move(work));
  }
  void StartHandler(HttpHandler handler, LoopWork work = {}) {
    auto server = HttpServer::Start(listener_.socket.get(), limits_, std::move(handler), SayProblem,
                                    gate_, std::move(work));
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(server).value();
  }
  TestClient Connect() { return TestClient(listener_.port); }

  Listener listener_ = ListenOnLoopback();
  HttpLimits limits_;
  OpenGate open_gate_;
  ConnectionGate* gate_ = &open_gate_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace sysone
