// The event loop of the HTTP server: one thread that owns every connection, reads requests, begins them (itself or on the
// pool), writes the answers when they come, and closes what has been idle or slow for too long.
//
//   kReading ── whole request ──▶ kHandling (its call is out) ──▶ kWriting ─┬▶ kReading
//      └─────── refused ─────────────────────────────────────────▶ kWriting ─┴▶ kLingering ──▶ closed
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "api_server/connection_gate.h"
#include "api_server/http_call.h"
#include "api_server/http_limits.h"
#include "api_server/http_types.h"
#include "api_server/loop_source.h"
#include "api_server/request_exchange.h"
#include "api_server/request_pool.h"
#include "api_server/request_reader.h"
#include "api_server/unique_fd.h"

namespace sysone {

class HttpLoop {
 public:
  // `limits` and `gate` outlive the loop.
  HttpLoop(const HttpLimits& limits, HttpHandler handler, HttpProblemHandler problem_handler,
           ConnectionGate* gate, LoopWork work);
  // Answers what is queued with 503, waits for the answers of all calls, closes every connection.
  ~HttpLoop();

  // Takes a connection, or answers it with 503 when there are too many. One thread calls it.
  void Add(UniqueFd socket, std::string peer);

  // See HttpServer::Drain; Add must not be called any more.
  bool Drain(int64_t deadline_us);

  size_t open_connections() const { return open_.load(std::memory_order_relaxed); }
  size_t requests_in_handlers() const { return begun_.load(std::memory_order_relaxed); }
  size_t requests_queued() const { return pool_->queued(); }
  uint64_t accepted() const { return accepted_.load(std::memory_order_relaxed); }
  uint64_t connections_refused() const {
    return connections_refused_.load(std::memory_order_relaxed);
  }
  uint64_t requests_received() const { return requests_received_.load(std::memory_order_relaxed); }
  uint64_t requests_refused() const { return requests_refused_.load(std::memory_order_relaxed); }

 private:
  // Below them, ids of events mean the eventfd and the source's descriptor.
  static constexpr uint64_t kFirstConnection = 2;
  enum class Stage { kReading, kHandling, kWriting, kLingering };

  // The loop's thread's alone.
  struct Connection {
    Connection(uint64_t id_, UniqueFd socket_, std::string peer_, const HttpLimits& limits)
        : id(id_), socket(std::move(socket_)), peer(std::move(peer_)), reader(limits) {}
    const uint64_t id;
    UniqueFd socket;
    const std::string peer;
    RequestReader reader;
    Stage stage = Stage::kReading;
    // The reader's state for which the deadline was set.
    RequestReader::State timed = RequestReader::State::kComplete;
    bool counted = true;      // in open_ and the gate; refused connections are not
    bool served = false;      // at least one request was answered
    bool keep_alive = true;   // after the response
    bool broken = false;      // the socket failed while writing
    int64_t received_us = 0;  // first byte of the request
    int64_t deadline_us = 0;  // its place in deadlines_; 0: none
    size_t buffered = 0;      // its part of buffered_
    std::string out;          // response
    size_t sent = 0;          // of out
  };
  struct Arrival {
    UniqueFd socket;
    std::string peer;
    bool refused;
  };
  struct Reply {
    uint64_t connection;
    HttpResponse response;
  };

  void Run();
  std::span<const epoll_event> Sleep(std::span<epoll_event> events, int64_t wake_us);
  void OnEvent(const epoll_event& event);
  int64_t NextDeadline() const;
  void Wake();
  void TakeMail();
  void Welcome(Arrival arrival);
  void BeginDrain();
  void OnReady(Connection& connection);
  void ExpireDeadlines();

  void Receive(Connection& connection);
  void Proceed(Connection& connection);
  void EnterState(Connection& connection);
  void AwaitRequest(Connection& connection);
  void Dispatch(Connection& connection);
  HttpCall CallOf(Connection& connection);
  void ServeOnPool(HttpCall call);
  void Answer(uint64_t connection, HttpResponse response);
  void TakeReplies();
  void Refuse(Connection& connection, const HttpProblem& problem);
  static void TrySend(Connection& connection);
  void AfterSend(Connection& connection);
  void Linger(Connection& connection);
  void Discard(Connection& connection);
  void Close(Connection& connection);  // destroys it

  void Arm(Connection& connection, uint32_t events);
  void SetDeadline(Connection& connection, int64_t deadline_us);
  void Recount(Connection& connection);

  const HttpLimits& limits_;
  const RequestExchange exchange_;
  ConnectionGate* const gate_;
  const LoopWork work_;
  UniqueFd epoll_;
  UniqueFd wake_;  // eventfd: there is mail, or the loop is to stop

  // Any thread.
  std::atomic<bool> stopping_{false};
  std::atomic<bool> draining_{false};
  std::atomic<size_t> open_{0};
  std::atomic<size_t> begun_{0};  // calls that were given to the handler and are not answered
  std::atomic<uint64_t> accepted_{0};
  std::atomic<uint64_t> connections_refused_{0};
  std::atomic<uint64_t> requests_received_{0};
  std::atomic<uint64_t> requests_refused_{0};
  std::mutex mail_mutex_;
  std::vector<Arrival> arrivals_;
  std::vector<Reply> replies_;   // from other threads
  std::thread::id loop_thread_;  // set before there is any request
  std::condition_variable emptied_;
  bool empty_ = false;  // drained: no connection is left

  // The loop's thread only.
  std::unordered_map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::set<std::pair<int64_t, uint64_t>> deadlines_;  // (deadline_us, id)
  std::array<char, 64 << 10> receive_buffer_;
  uint64_t next_id_ = kFirstConnection;
  std::vector<Reply>
      own_replies_;   // from handlers and the source on this thread; sent when they have returned
  size_t calls_ = 0;  // connections in kHandling
  size_t buffered_ = 0;
  size_t refused_open_ = 0;
  bool drain_begun_ = false;
  bool source_rang_ = false;  // its descriptor is readable

  std::unique_ptr<RequestPool> pool_;
  std::thread thread_;
};

}  // namespace sysone
