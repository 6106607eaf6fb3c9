// SPDX-License-Identifier: Apache-2.0
#include "api_server/http_loop.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/clock.h"

namespace sysone {
namespace {

// Receives of one connection before the others get their turn.
constexpr int kReadsPerTurn = 8;
// Refused connections that linger at the same time; more are closed without waiting for the client.
constexpr size_t kMaxRefusedOpen = 256;
constexpr int kRetryAfterSeconds = 1;

// True when the client has closed its sending side, or the connection is dead.
bool PeerClosed(int fd) {
  pollfd state{fd, POLLRDHUP, 0};
  return poll(&state, 1, 0) > 0 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

}  // namespace

HttpLoop::HttpLoop(const HttpLimits& limits, HttpHandler handler,
                   HttpProblemHandler problem_handler, ConnectionGate* gate)
    : limits_(limits),
      exchange_(limits, std::move(handler), std::move(problem_handler)),
      gate_(gate),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      pool_(std::make_unique<RequestPool>(limits.threads, limits.max_queued_requests)) {
  SYSONE_CHECK(epoll_ && wake_, "epoll and eventfd: %s", std::strerror(errno));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 0;
  SYSONE_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) == 0, "epoll_ctl: %s",
               std::strerror(errno));
  thread_ = std::thread([this] { Run(); });
}

HttpLoop::~HttpLoop() {
  stopping_ = true;
  Wake();
  thread_.join();
  pool_.reset();  // its jobs use connections_
  while (!connections_.empty()) Close(*connections_.begin()->second);
}

void HttpLoop::Add(UniqueFd socket, std::string peer) {
  // Only this thread adds, so the cap holds exactly.
  const bool refused = open_.load(std::memory_order_relaxed) >= limits_.max_connections;
  if (refused) {
    connections_refused_.fetch_add(1, std::memory_order_relaxed);
  } else {
    open_.fetch_add(1, std::memory_order_relaxed);
    accepted_.fetch_add(1, std::memory_order_relaxed);
    gate_->Opened();
  }
  {
    const std::lock_guard lock(mail_mutex_);
    arrivals_.push_back({std::move(socket), std::move(peer), refused});
  }
  Wake();
}

bool HttpLoop::Drain(int64_t deadline_us) {
  draining_ = true;
  Wake();
  std::unique_lock lock(mail_mutex_);
  const int64_t left_us = std::max<int64_t>(0, deadline_us - MonotonicUs());
  return emptied_.wait_for(lock, std::chrono::microseconds(left_us), [this] { return empty_; });
}

void HttpLoop::Wake() {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the loop is awake anyway.
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
}

void HttpLoop::Run() {
  std::array<epoll_event, 128> events;
  while (!stopping_) {
    const int count =
        epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), WaitMs());
    SYSONE_CHECK(count >= 0 || errno == EINTR, "epoll_wait: %s", std::strerror(errno));
    for (int i = 0; i < count; ++i) {
      const uint64_t id = events[static_cast<size_t>(i)].data.u64;
      if (id == 0) {
        TakeMail();
        continue;
      }
      // Mail may have closed the connection since the event was collected.
      const auto found = connections_.find(id);
      if (found != connections_.end() && found->second->stage != Stage::kHandling)
        OnReady(*found->second);
    }
    ExpireDeadlines();
    if (drain_begun_ && connections_.empty()) {
      const std::lock_guard lock(mail_mutex_);
      empty_ = arrivals_.empty();
      emptied_.notify_all();
    }
  }
}

int HttpLoop::WaitMs() const {
  if (deadlines_.empty()) return -1;
  const int64_t left_us = deadlines_.begin()->first - MonotonicUs();
  return static_cast<int>(std::clamp<int64_t>((left_us + 999) / 1000, 0, 60'000));
}

void HttpLoop::TakeMail() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(wake_.get(), &count, sizeof count);
  std::vector<Arrival> arrivals;
  std::vector<uint64_t> done;
  {
    const std::lock_guard lock(mail_mutex_);
    arrivals.swap(arrivals_);
    done.swap(done_);
  }
  for (Arrival& arrival : arrivals) Welcome(std::move(arrival));
  for (const uint64_t id : done) {
    Connection& connection = *connections_.at(id);
    connection.served = true;
    Recount(connection);
    AfterSend(connection);
  }
  if (draining_ && !drain_begun_) BeginDrain();
}

void HttpLoop::Welcome(Arrival arrival) {
  const uint64_t id = next_id_++;
  auto owned =
      std::make_unique<Connection>(id, std::move(arrival.socket), std::move(arrival.peer), limits_);
  Connection& connection = *owned;
  connection.counted = !arrival.refused;
  connections_.emplace(id, std::move(owned));
  epoll_event event{};
  event.events = EPOLLONESHOT;  // armed when something is awaited
  event.data.u64 = id;
  SYSONE_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection.socket.get(), &event) == 0,
               "epoll_ctl: %s", std::strerror(errno));
  if (arrival.refused) {
    ++refused_open_;
    Refuse(connection, {503, "too many connections; try again later", kRetryAfterSeconds});
  } else {
    Receive(connection);  // the request often is there already
  }
}

void HttpLoop::BeginDrain() {
  drain_begun_ = true;
  std::vector<uint64_t> idle;
  for (const auto& [id, connection] : connections_)
    if (connection->stage == Stage::kReading &&
        connection->reader.state() == RequestReader::State::kIdle)
      idle.push_back(id);
  // One last look: a request that has arrived by now is answered.
  for (const uint64_t id : idle) {
    connections_.at(id)->timed = RequestReader::State::kComplete;
    Receive(*connections_.at(id));
  }
}

void HttpLoop::OnReady(Connection& connection) {
  switch (connection.stage) {
    case Stage::kReading:
      Receive(connection);
      return;
    case Stage::kWriting:
      TrySend(connection);
      AfterSend(connection);
      return;
    case Stage::kLingering:
      Discard(connection);
      return;
    case Stage::kHandling:
      return;
  }
}

void HttpLoop::ExpireDeadlines() {
  const int64_t now_us = MonotonicUs();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_us) {
    Connection& connection = *connections_.at(deadlines_.begin()->second);
    SetDeadline(connection, 0);
    if (connection.stage != Stage::kReading ||
        connection.reader.state() == RequestReader::State::kIdle) {
      Close(connection);
    } else {
      const bool body = connection.reader.state() == RequestReader::State::kBody;
      Refuse(connection, {408, body ? "the request's body did not arrive in time"
                                    : "the request's head did not arrive in time"});
    }
  }
}

void HttpLoop::Receive(Connection& connection) {
  for (int turn = 0; turn < kReadsPerTurn; ++turn) {
    const ssize_t count =
        recv(connection.socket.get(), receive_buffer_.data(), receive_buffer_.size(), 0);
    if (count < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) break;
      return Close(connection);
    }
    if (count == 0) {
      if (connection.reader.state() == RequestReader::State::kIdle) return Close(connection);
      // The sending side is closed; the other one may still be read.
      return Refuse(connection, {400, "the request ended before it was complete"});
    }
    if (connection.reader.state() == RequestReader::State::kIdle)
      connection.received_us = MonotonicUs();
    const auto state = connection.reader.Feed({receive_buffer_.data(), static_cast<size_t>(count)});
    const bool settled =
        state == RequestReader::State::kComplete || state == RequestReader::State::kFailed;
    if (settled || static_cast<size_t>(count) < receive_buffer_.size()) break;
  }
  Proceed(connection);
}

// Does what the reader's state asks for. May destroy the connection.
void HttpLoop::Proceed(Connection& connection) {
  Recount(connection);
  switch (connection.reader.state()) {
    case RequestReader::State::kComplete:
      return Dispatch(connection);
    case RequestReader::State::kFailed:
      return Refuse(connection, connection.reader.problem());
    case RequestReader::State::kIdle:
      return AwaitRequest(connection);
    case RequestReader::State::kHead:
    case RequestReader::State::kBody:
      break;
  }
  if (buffered_ > limits_.max_buffered_bytes &&
      connection.reader.state() == RequestReader::State::kBody)
    return Refuse(connection, {503, "too many large requests are arriving; try again later",
                               kRetryAfterSeconds});
  EnterState(connection);
  Arm(connection, EPOLLIN);
}

// Sets the deadline of a head or a body once, when it begins: bytes that drip in do not prolong it.
void HttpLoop::EnterState(Connection& connection) {
  const RequestReader::State state = connection.reader.state();
  if (connection.timed == state) return;
  connection.timed = state;
  if (state == RequestReader::State::kHead)
    return SetDeadline(connection, connection.received_us + limits_.head_timeout_us);
  SetDeadline(connection, MonotonicUs() + limits_.body_timeout_us);
  if (connection.reader.head().expects_continue && connection.reader.body().empty()) {
    constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    // Fits every socket buffer that has nothing else in it; a client that gets none sends its body
    // anyway.
    send(connection.socket.get(), kContinue.data(), kContinue.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

void HttpLoop::AwaitRequest(Connection& connection) {
  // A client that has just connected is about to send; it is not cut off at once.
  if (drain_begun_ && connection.served) return Close(connection);
  if (connection.timed != RequestReader::State::kIdle) {
    connection.timed = RequestReader::State::kIdle;
    SetDeadline(connection,
                MonotonicUs() + (drain_begun_ ? limits_.linger_us : limits_.keep_alive_us));
  }
  Arm(connection, EPOLLIN);
}

void HttpLoop::Dispatch(Connection& connection) {
  SetDeadline(connection, 0);
  connection.stage = Stage::kHandling;
  requests_received_.fetch_add(1, std::memory_order_relaxed);
  if (pool_->Submit([this, &connection](HttpCodec& codec) { HandleOnPool(connection, codec); }))
    return;
  connection.stage = Stage::kReading;
  // The connection ends too: its next one may find a less loaded server.
  Refuse(connection, {503, "too many requests are waiting; try again later", kRetryAfterSeconds});
}

// On a pool thread, which owns the connection until its id is in the mail.
void HttpLoop::HandleOnPool(Connection& connection, HttpCodec& codec) {
  const int fd = connection.socket.get();
  if (stopping_) {
    connection.keep_alive = false;
    connection.out = exchange_.Refuse(codec, {503, "the server is stopping", kRetryAfterSeconds},
                                      &connection.reader.head(), connection.peer);
  } else {
    connection.out = exchange_.Answer(codec, connection.reader,
                                      {connection.peer, connection.received_us,
                                       [this, fd] { return stopping_ || PeerClosed(fd); },
                                       [this] { return draining_ || stopping_; }},
                                      connection.keep_alive);
  }
  connection.sent = 0;
  TrySend(connection);
  bool first = false;
  {
    const std::lock_guard lock(mail_mutex_);
    first = done_.empty();
    done_.push_back(connection.id);
  }
  if (first) Wake();
}

// Answers in the handler's place and ends the connection. May destroy it.
void HttpLoop::Refuse(Connection& connection, const HttpProblem& problem) {
  requests_refused_.fetch_add(1, std::memory_order_relaxed);
  const HttpHead* head = connection.reader.has_head() ? &connection.reader.head() : nullptr;
  connection.out = exchange_.Refuse(codec_, problem, head, connection.peer);
  connection.sent = 0;
  connection.keep_alive = false;
  TrySend(connection);
  AfterSend(connection);
}

// Sends what the socket takes now. The loop's thread, or the pool thread that owns the connection.
void HttpLoop::TrySend(Connection& connection) {
  while (connection.sent < connection.out.size()) {
    const ssize_t count =
        send(connection.socket.get(), connection.out.data() + connection.sent,
             connection.out.size() - connection.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      connection.sent += static_cast<size_t>(count);
    } else if (errno != EINTR) {
      connection.broken = errno != EAGAIN && errno != EWOULDBLOCK;
      return;
    }
  }
}

// Goes on after TrySend. May destroy the connection.
void HttpLoop::AfterSend(Connection& connection) {
  if (connection.broken) return Close(connection);
  if (connection.sent < connection.out.size()) {
    if (connection.stage != Stage::kWriting) {
      connection.stage = Stage::kWriting;
      SetDeadline(connection, MonotonicUs() + limits_.write_timeout_us);
    }
    return Arm(connection, EPOLLOUT);
  }
  std::string().swap(connection.out);  // assigning an empty string would keep the memory
  connection.sent = 0;
  if (!connection.keep_alive) return Linger(connection);
  connection.stage = Stage::kReading;
  connection.timed = RequestReader::State::kComplete;
  connection.reader.Next();
  connection.received_us =
      MonotonicUs();  // of a pipelined request; overwritten by a later first byte
  Proceed(connection);
}

// Closing with unread bytes would reset the connection and could destroy the response on its way.
void HttpLoop::Linger(Connection& connection) {
  shutdown(connection.socket.get(), SHUT_WR);
  connection.stage = Stage::kLingering;
  SetDeadline(connection, MonotonicUs() + limits_.linger_us);
  Discard(connection);
}

void HttpLoop::Discard(Connection& connection) {
  for (int turn = 0; turn < kReadsPerTurn; ++turn) {
    const ssize_t count =
        recv(connection.socket.get(), receive_buffer_.data(), receive_buffer_.size(), 0);
    if (count > 0) continue;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    return Close(connection);
  }
  if (!connection.counted && refused_open_ > kMaxRefusedOpen) return Close(connection);
  Arm(connection, EPOLLIN);
}

void HttpLoop::Close(Connection& connection) {
  SetDeadline(connection, 0);
  buffered_ -= connection.buffered;
  if (connection.counted) {
    open_.fetch_sub(1, std::memory_order_relaxed);
    gate_->Closed();
  } else {
    --refused_open_;
  }
  connections_.erase(connection.id);  // closes the socket, which leaves the epoll set by itself
}

void HttpLoop::Arm(Connection& connection, uint32_t events) {
  epoll_event event{};
  event.events = events | EPOLLONESHOT;
  event.data.u64 = connection.id;
  SYSONE_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.socket.get(), &event) == 0,
               "epoll_ctl: %s", std::strerror(errno));
}

void HttpLoop::SetDeadline(Connection& connection, int64_t deadline_us) {
  if (connection.deadline_us != 0) deadlines_.erase({connection.deadline_us, connection.id});
  connection.deadline_us = deadline_us;
  if (deadline_us != 0) deadlines_.emplace(deadline_us, connection.id);
}

void HttpLoop::Recount(Connection& connection) {
  const size_t now = connection.reader.buffered_bytes();
  buffered_ += now - connection.buffered;
  connection.buffered = now;
}

}  // namespace sysone
