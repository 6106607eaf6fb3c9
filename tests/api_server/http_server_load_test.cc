// The HTTP server over real sockets: many clients, slow clients, clients that leave, and the server's own end.
// SPDX-License-Identifier: Apache-2.0
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/api_server/http_server_fixture.h"

namespace sysone {
namespace {

using HttpServerLoad = HttpServerTest;

int64_t InSeconds(int seconds) { return MonotonicUs() + seconds * int64_t{1'000'000}; }

TEST_F(HttpServerLoad, AnswersAHeadThatDoesNotArriveInTimeWith408) {
  limits_.head_timeout_us = 20'000;
  Start();
  TestClient client = Connect();
  const ClientResponse response = client.Ask("GET / HTTP/1.1\r\nHost:");
  EXPECT_EQ(response.status, 408);
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(HttpServerLoad, AnswersABodyThatDripsWith408) {
  limits_.body_timeout_us = 50'000;
  Start();
  TestClient client = Connect();
  client.Send("POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
  // Dripping bytes must not prolong the deadline: this ends because the server ends it.
  std::thread drip([&] {
    while (server_->stats().requests_refused == 0 && client.Send("x")) sched_yield();
  });
  const ClientResponse response = client.Read();
  drip.join();
  EXPECT_EQ(response.status, 408);
  EXPECT_NE(response.body.find(R"("path":"/slow")"), std::string::npos);
}

TEST_F(HttpServerLoad, ClosesIdleConnectionsInSilence) {
  limits_.keep_alive_us = 20'000;
  Start();
  TestClient fresh = Connect();
  EXPECT_TRUE(fresh.AtEnd());
  TestClient used = Connect();
  EXPECT_EQ(used.Ask(Get("/")).status, 200);
  EXPECT_TRUE(used.AtEnd());
  EXPECT_TRUE(Eventually([&] { return server_->stats().open_connections == 0; }));
}

TEST_F(HttpServerLoad, RefusesConnectionsOverTheCapInWords) {
  limits_.max_connections = 2;
  Start();
  TestClient first = Connect();
  EXPECT_EQ(first.Ask(Get("/1")).status, 200);
  {
    TestClient second = Connect();
    EXPECT_EQ(second.Ask(Get("/2")).status, 200);
    TestClient third = Connect();
    const ClientResponse response = third.Ask(Get("/3"));
    EXPECT_EQ(response.status, 503);
    EXPECT_EQ(response.Header("Retry-After"), "1");
    EXPECT_TRUE(response.body.starts_with("{")) << response.body;
    EXPECT_TRUE(third.AtEnd());
    EXPECT_EQ(first.Ask(Get("/4")).status, 200);
  }
  ASSERT_TRUE(Eventually([&] { return server_->stats().open_connections == 1; }));
  TestClient fourth = Connect();
  EXPECT_EQ(fourth.Ask(Get("/5")).status, 200);
  EXPECT_EQ(server_->stats().connections_refused, 1u);
}

TEST_F(HttpServerLoad, RefusesRequestsOverTheQueueInWords) {
  limits_.threads = 1;
  limits_.max_queued_requests = 1;
  Latch release;
  Start([&](const HttpRequest& request) {
    release.Wait();
    return Echo(request);
  });
  TestClient running = Connect(), queued = Connect(), refused = Connect();
  running.Send(Get("/running"));
  ASSERT_TRUE(Eventually([&] { return server_->stats().requests_in_handlers == 1; }));
  queued.Send(Get("/queued"));
  ASSERT_TRUE(Eventually([&] { return server_->stats().requests_queued == 1; }));
  const ClientResponse response = refused.Ask(Get("/refused"));
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.Header("Retry-After"), "1");
  release.Open();
  EXPECT_EQ(running.Read().body, "GET /running? ");
  EXPECT_EQ(queued.Read().body, "GET /queued? ");
}

TEST_F(HttpServerLoad, BoundsTheMemoryOfAllBodiesTogether) {
  limits_.max_buffered_bytes = 1u << 20;
  Start();
  TestClient big = Connect();
  big.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n\r\n" +
           std::string(2u << 20, 'x'));
  EXPECT_EQ(big.Read().status, 503);
  TestClient small = Connect();
  EXPECT_EQ(small.Ask(Post("/", "x")).status, 200);
}

TEST_F(HttpServerLoad, KeepsFiveHundredIdleConnectionsOnTwoThreads) {
  limits_.threads = 2;
  Start();
  std::vector<TestClient> clients;
  for (int i = 0; i < 500; ++i) clients.push_back(Connect());
  for (int round = 0; round < 2; ++round)
    for (size_t i = 0; i < clients.size(); ++i)
      ASSERT_EQ(clients[i].Ask(Get("/" + std::to_string(i))).body,
                "GET /" + std::to_string(i) + "? ");
  EXPECT_EQ(server_->stats().open_connections, 500u);
  clients.clear();
  EXPECT_TRUE(Eventually([&] { return server_->stats().open_connections == 0; }));
}

TEST_F(HttpServerLoad, SlowClientsHoldNoThread) {
  limits_.threads = 1;
  Start();
  std::vector<TestClient> slow;
  for (int i = 0; i < 20; ++i) {
    slow.push_back(Connect());
    slow.back().Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
  }
  TestClient quick = Connect();
  EXPECT_EQ(quick.Ask(Get("/quick")).body, "GET /quick? ");
  for (TestClient& client : slow) EXPECT_EQ(client.Ask("better").body, "POST /? halfbetter");
}

TEST_F(HttpServerLoad, ClientsThatDoNotReadHoldNoThread) {
  limits_.threads = 1;
  // Far beyond what socket buffers take, so that the rest must wait for the client.
  const std::string large(16u << 20, 'y');
  Start([&](const HttpRequest& request) {
    return request.path == "/large" ? HttpResponse{200, {}, large} : Echo(request);
  });
  TestClient lazy = Connect();
  lazy.Send(Get("/large"));
  TestClient quick = Connect();
  ASSERT_TRUE(Eventually([&] { return server_->stats().requests_received == 1; }));
  EXPECT_EQ(quick.Ask(Get("/quick")).body, "GET /quick? ");
  EXPECT_EQ(lazy.Read().body, large);
  EXPECT_EQ(lazy.Ask(Get("/more")).body, "GET /more? ");
}

TEST_F(HttpServerLoad, DropsAClientThatNeverReads) {
  limits_.write_timeout_us = 50'000;
  Start([&](const HttpRequest&) { return HttpResponse{200, {}, std::string(16u << 20, 'y')}; });
  TestClient lazy = Connect();
  lazy.Send(Get("/"));
  EXPECT_TRUE(Eventually([&] { return server_->stats().requests_received == 1; }));
  EXPECT_TRUE(Eventually([&] { return server_->stats().open_connections == 0; }));
}

TEST_F(HttpServerLoad, TellsTheHandlerThatTheClientIsGone) {
  std::atomic<int> seen{0};  // 1: in the handler with a client, 2: the client has left
  Start([&](const HttpRequest& request) {
    EXPECT_FALSE(request.client_gone());
    seen = 1;
    if (Eventually([&] { return request.client_gone(); })) seen = 2;
    return Echo(request);
  });
  {
    TestClient client = Connect();
    client.Send(Get("/"));
    ASSERT_TRUE(Eventually([&] { return seen == 1; }));
  }
  EXPECT_TRUE(Eventually([&] { return seen == 2; }));
  EXPECT_TRUE(Eventually([&] { return server_->stats().open_connections == 0; }));
}

LoopWork AllQuick() {
  LoopWork work;
  work.quick = [](const HttpRequest&) { return true; };
  return work;
}

TEST_F(HttpServerLoad, HandlesQuickRequestsWithoutAThread) {
  std::thread::id handled_on;
  limits_.threads = 1;
  Latch release;
  LoopWork work;
  work.quick = [](const HttpRequest& request) { return request.path != "/slow"; };
  Start(
      [&](const HttpRequest& request) {
        if (request.path == "/slow") release.Wait();
        if (request.path == "/quick") handled_on = std::this_thread::get_id();
        return Echo(request);
      },
      std::move(work));
  TestClient slow = Connect(), quick = Connect();
  slow.Send(Get("/slow"));
  ASSERT_TRUE(Eventually([&] { return server_->stats().requests_in_handlers == 1; }));
  EXPECT_EQ(quick.Ask(Get("/quick")).body, "GET /quick? ");
  EXPECT_NE(handled_on, std::thread::id());
  // Inflating is work, whatever is in it.
  quick.Send(Post("/quick", "x", "Content-Encoding: br\r\n"));
  EXPECT_TRUE(Eventually([&] { return server_->stats().requests_queued == 1; }));
  release.Open();
  EXPECT_EQ(slow.Read().body, "GET /slow? ");
  EXPECT_EQ(quick.Read().status, 415);
}

TEST_F(HttpServerLoad, AnswersAnyNumberOfPipelinedQuickRequests) {
  Start(Echo, AllQuick());
  TestClient client = Connect();
  constexpr int kRequests = 20'000;  // deep recursion would show
  std::thread sender([&] {
    std::string bytes;
    for (int i = 0; i < kRequests; ++i) bytes += Get("/" + std::to_string(i));
    client.Send(bytes);
  });
  for (int i = 0; i < kRequests; ++i)
    ASSERT_EQ(client.Read().body, "GET /" + std::to_string(i) + "? ");
  sender.join();
}

// Answers come from another thread, in any order, while the connections wait.
TEST_F(HttpServerLoad, CallsMayBeAnsweredLaterAndFromAnyThread) {
  std::mutex mutex;
  std::vector<HttpCall> calls;
  StartHandler(
      [&](HttpCall call) {
        const std::lock_guard lock(mutex);
        calls.push_back(std::move(call));
      },
      AllQuick());
  constexpr size_t kClients = 50;
  std::vector<TestClient> clients;
  for (size_t i = 0; i < kClients; ++i) {
    clients.push_back(Connect());
    clients.back().Send(Get("/" + std::to_string(i)));
  }
  ASSERT_TRUE(Eventually([&] { return server_->stats().requests_in_handlers == kClients; }));
  std::thread answering([&] {
    const std::lock_guard lock(mutex);
    for (; !calls.empty(); calls.pop_back()) {
      if (calls.size() % 10 == 0) continue;  // dropped
      calls.back().Reply(Echo(calls.back().request()));
    }
  });
  size_t answered = 0;
  size_t dropped = 0;
  for (size_t i = 0; i < kClients; ++i) {
    const ClientResponse response = clients[i].Read();
    answered += response.status == 200 && response.body == "GET /" + std::to_string(i) + "? ";
    dropped += response.status == 500;
  }
  answering.join();
  EXPECT_EQ(answered, 45u);
  EXPECT_EQ(dropped, 5u);
  EXPECT_EQ(server_->stats().requests_in_handlers, 0u);
}

// A source whose answers are ready some polls after their calls, and which is woken through a descriptor.
class LateSource final : public LoopSource {
 public:
  LateSource() : wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  int wake_fd() const override { return wake_.get(); }
  void Quieten() override {
    uint64_t count;
    [[maybe_unused]] const ssize_t got = read(wake_.get(), &count, sizeof count);
  }
  int64_t Poll() override {
    std::vector<HttpCall> ready;
    {
      const std::lock_guard lock(mutex_);
      ready.swap(ready_);
    }
    for (HttpCall& call : ready) call.Reply(Echo(call.request()));
    const std::lock_guard lock(mutex_);
    return gone_.empty() ? INT64_MAX : MonotonicUs() + 1'000;
  }
  bool FallAsleep() override {
    const std::lock_guard lock(mutex_);
    return ready_.empty();
  }
  void WakeUp() override {}

  void Begin(HttpCall call) {
    const std::lock_guard lock(mutex_);
    gone_.push_back(std::move(call));
  }
  // From another thread: what was begun is ready.
  bool Finish() {
    const std::lock_guard lock(mutex_);
    const bool any = !gone_.empty();
    for (HttpCall& call : gone_) ready_.push_back(std::move(call));
    gone_.clear();
    const uint64_t one = 1;
    return any && write(wake_.get(), &one, sizeof one) == sizeof one;
  }

 private:
  const UniqueFd wake_;
  std::mutex mutex_;
  std::vector<HttpCall> gone_, ready_;
};

TEST_F(HttpServerLoad, WaitsForItsSourceTogetherWithItsSockets) {
  LateSource source;
  LoopWork work = AllQuick();
  work.source = &source;
  StartHandler([&](HttpCall call) { source.Begin(std::move(call)); }, std::move(work));
  TestClient first = Connect(), second = Connect();
  std::atomic<bool> stop = false;
  std::thread finishing([&] {
    for (; !stop; sched_yield()) source.Finish();
  });
  for (int i = 0; i < 200; ++i) {
    first.Send(Get("/1"));
    second.Send(Get("/2"));
    EXPECT_EQ(first.Read().body, "GET /1? ");
    EXPECT_EQ(second.Read().body, "GET /2? ");
  }
  stop = true;
  finishing.join();
  // The server stops only when every call is answered.
  first.Send(Get("/last"));
  EXPECT_TRUE(Eventually([&] { return server_->stats().requests_in_handlers == 1; }));
  std::thread later([&] { EXPECT_TRUE(Eventually([&] { return source.Finish(); })); });
  server_.reset();
  later.join();
  EXPECT_EQ(first.Read().body, "GET /last? ");
}

TEST_F(HttpServerLoad, TurnsAThrowingHandlerIntoA500) {
  Start([](const HttpRequest&) -> HttpResponse { throw std::runtime_error("boom"); });
  TestClient client = Connect();
  EXPECT_EQ(client.Ask(Get("/")).status, 500);
  EXPECT_EQ(client.Ask(Get("/")).status, 500);
}

TEST_F(HttpServerLoad, DrainAnswersWhatHasBegunAndClosesTheRest) {
  Latch release;
  Start([&](const HttpRequest& request) {
    if (request.path == "/held") release.Wait();
    return Echo(request);
  });
  TestClient idle = Connect(), held = Connect(), partial = Connect();
  EXPECT_EQ(idle.Ask(Get("/")).status, 200);
  EXPECT_EQ(partial.Ask(Get("/")).status, 200);
  partial.Send("GET /partial HTTP/1.1\r\n");
  held.Send(Get("/held"));
  ASSERT_TRUE(Eventually([&] { return server_->stats().requests_in_handlers == 1; }));
  EXPECT_FALSE(server_->Drain(MonotonicUs() + 10'000));
  EXPECT_TRUE(idle.AtEnd());
  // Nobody accepts any more: the kernel takes the connection, no server answers it.
  TestClient late = Connect();
  EXPECT_EQ(server_->stats().connections_accepted, 3u);

  const ClientResponse rest = partial.Ask("Host: a\r\n\r\n");
  EXPECT_EQ(rest.body, "GET /partial? ");
  EXPECT_EQ(rest.Header("Connection"), "close");
  release.Open();
  const ClientResponse response = held.Read();
  EXPECT_EQ(response.body, "GET /held? ");
  EXPECT_EQ(response.Header("Connection"), "close");
  EXPECT_TRUE(held.AtEnd());
  EXPECT_TRUE(partial.AtEnd());
  held = Connect();     // closes the old ones,
  partial = Connect();  // as clients do that read `Connection: close`
  EXPECT_TRUE(server_->Drain(InSeconds(10)));
  EXPECT_EQ(server_->stats().open_connections, 0u);
}

TEST_F(HttpServerLoad, DrainOfAnIdleServerEndsAtOnce) {
  Start();
  EXPECT_TRUE(server_->Drain(InSeconds(10)));
  EXPECT_TRUE(server_->Drain(InSeconds(10)));
}

TEST_F(HttpServerLoad, AnswersQueuedRequestsWhenItIsDestroyed) {
  limits_.threads = 1;
  Start([&](const HttpRequest& request) {
    EXPECT_TRUE(
        Eventually([&] { return request.client_gone(); }));  // true because the server stops
    return Echo(request);
  });
  TestClient running = Connect(), queued = Connect();
  running.Send(Get("/running"));
  ASSERT_TRUE(Eventually([&] { return server_->stats().requests_in_handlers == 1; }));
  queued.Send(Get("/queued"));
  ASSERT_TRUE(Eventually([&] { return server_->stats().requests_queued == 1; }));
  server_.reset();
  EXPECT_EQ(running.Read().body, "GET /running? ");
  EXPECT_EQ(queued.Read().status, 503);
}

TEST_F(HttpServerLoad, RefusesADescriptorThatDoesNotListen) {
  const UniqueFd plain(socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(
      HttpServer::Start(plain.get(), limits_, Blocking(Echo), SayProblem, gate_).status().code(),
      Code::kUnavailable);
}

// The rule of the real gate over counters in this process: the least loaded server takes the next connection.
struct SharedLoads {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int> open;
};

class LeastLoadedGate final : public ConnectionGate {
 public:
  LeastLoadedGate(SharedLoads& loads, size_t self) : loads_(loads), self_(self) {}
  bool MyTurn() override {
    const std::lock_guard lock(loads_.mutex);
    return loads_.open[self_] <= *std::min_element(loads_.open.begin(), loads_.open.end());
  }
  void WaitForChange(int64_t timeout_us) override {
    std::unique_lock lock(loads_.mutex);
    loads_.changed.wait_for(lock, std::chrono::microseconds(timeout_us));
  }
  void Opened() override { Add(1); }
  void Closed() override { Add(-1); }

 private:
  void Add(int change) {
    const std::lock_guard lock(loads_.mutex);
    loads_.open[self_] += change;
    loads_.changed.notify_all();
  }
  SharedLoads& loads_;
  const size_t self_;
};

TEST_F(HttpServerLoad, ServersThatShareASocketSpreadConnectionsEvenly) {
  SharedLoads loads;
  loads.open.assign(4, 0);
  limits_.gate_patience_us = 5'000'000;  // evenness is what is tested, so nobody may jump the queue
  std::vector<std::unique_ptr<LeastLoadedGate>> gates;
  std::vector<std::unique_ptr<HttpServer>> servers;
  for (size_t i = 0; i < 4; ++i) {
    gates.push_back(std::make_unique<LeastLoadedGate>(loads, i));
    auto server = HttpServer::Start(listener_.socket.get(), limits_, Blocking(Echo), SayProblem,
                                    gates[i].get());
    ASSERT_TRUE(server.ok());
    servers.push_back(std::move(server).value());
  }
  std::vector<TestClient> clients;
  for (int i = 0; i < 40; ++i) {
    clients.push_back(Connect());
    ASSERT_EQ(clients.back().Ask(Get("/")).status, 200);
  }
  for (const auto& server : servers) EXPECT_EQ(server->stats().open_connections, 10u);
  servers.clear();
  for (const int open : loads.open) EXPECT_EQ(open, 0);  // Opened and Closed balance
}

class NeverGate final : public ConnectionGate {
 public:
  bool MyTurn() override { return false; }
  void WaitForChange(int64_t) override { ++waits; }
  void Opened() override {}
  void Closed() override {}
  std::atomic<int> waits{0};
};

TEST_F(HttpServerLoad, AcceptsOutOfTurnWhenNobodyElseDoes) {
  NeverGate never;
  gate_ = &never;
  limits_.gate_patience_us = 5'000;
  Start();
  TestClient client = Connect();
  EXPECT_EQ(client.Ask(Get("/")).status, 200);
  EXPECT_GT(never.waits, 0);
  server_.reset();
}

TEST_F(HttpServerLoad, ManyClientsAtOnceEachGetTheirOwnAnswers) {
  limits_.threads = 8;
  Start();
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      TestClient client = Connect();
      for (int i = 0; i < 100; ++i) {
        const std::string body = std::to_string(t) + "/" + std::to_string(i);
        right += client.Ask(Post("/", body)).body == "POST /? " + body;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 1600);
}

}  // namespace
}  // namespace sysone
