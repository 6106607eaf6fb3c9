// SPDX-License-Identifier: Apache-2.0
#include "api_server/http_loop.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <optional>

#include "api_server/http_codec.h"
#include "base/check.h"
#include "base/clock.h"

namespace sysone {
namespace {

// Receives of one connection before the others get their turn.
constexpr int kReadsPerTurn = 8;
// Refused connections that linger at the same time; more are closed without waiting for the client.
constexpr size_t kMaxRefusedOpen = 256;
constexpr int kRetryAfterSeconds = 1;

// Ids of events that are no connection's.
constexpr uint64_t kMailEvent = 0;
constexpr uint64_t kSourceEvent = 1;

// True when the client has closed its sending side, or the connection is dead.
bool PeerClosed(int fd) {
  pollfd state{fd, POLLRDHUP, 0};
  return poll(&state, 1, 0) > 0 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

ResponseFraming FramingOf(const HttpHead& head, bool keep_alive) {
  return {head.method == "HEAD", head.http_1_0, keep_alive};
}

}  // namespace

HttpLoop::HttpLoop(const HttpLimits& limits, HttpHandler handler,
                   HttpProblemHandler problem_handler, ConnectionGate* gate, LoopWork work)
    : limits_(limits),
      exchange_(limits, std::move(handler), std::move(problem_handler)),
      gate_(gate),
      work_(std::move(work)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      pool_(std::make_unique<RequestPool>(limits.threads, limits.max_queued_requests)) {
  SYSONE_CHECK(epoll_ && wake_, "epoll and eventfd: %s", std::strerror(errno));
  const auto watch = [this](int fd, uint64_t id) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = id;
    SYSONE_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl: %s",
                 std::strerror(errno));
  };
  watch(wake_.get(), kMailEvent);
  if (work_.source != nullptr) watch(work_.source->wake_fd(), kSourceEvent);
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
  loop_thread_ = std::this_thread::get_id();
  std::array<epoll_event, 128> events;
  while (!stopping_ || calls_ > 0) {
    const int64_t wake_us = work_.source == nullptr ? INT64_MAX : work_.source->Poll();
    TakeReplies();
    if (std::exchange(source_rang_, false))
      work_.source->Quieten();  // behind the answers: they are waited for
    for (const epoll_event& event : Sleep(events, std::min(wake_us, NextDeadline())))
      OnEvent(event);
    ExpireDeadlines();
    if (drain_begun_ && connections_.empty()) {
      const std::lock_guard lock(mail_mutex_);
      empty_ = arrivals_.empty();
      emptied_.notify_all();
    }
  }
}

// Waits for events, until `wake_us` at the latest, and returns what came.
std::span<const epoll_event> HttpLoop::Sleep(std::span<epoll_event> events, int64_t wake_us) {
  int timeout_ms = -1;
  if (!own_replies_.empty()) {
    timeout_ms = 0;
  } else if (wake_us != INT64_MAX) {
    timeout_ms =
        static_cast<int>(std::clamp<int64_t>((wake_us - MonotonicUs() + 999) / 1000, 0, 60'000));
  }
  const bool asleep = work_.source != nullptr && timeout_ms != 0;
  if (asleep && !work_.source->FallAsleep()) timeout_ms = 0;
  const int count =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  SYSONE_CHECK(count >= 0 || errno == EINTR, "epoll_wait: %s", std::strerror(errno));
  if (asleep) work_.source->WakeUp();
  return events.first(static_cast<size_t>(std::max(count, 0)));
}

void HttpLoop::OnEvent(const epoll_event& event) {
  if (event.data.u64 == kMailEvent) return TakeMail();
  if (event.data.u64 == kSourceEvent) {
    source_rang_ = true;  // Poll comes next
    return;
  }
  // Mail may have closed the connection since the event was collected.
  const auto found = connections_.find(event.data.u64);
  if (found != connections_.end() && found->second->stage != Stage::kHandling)
    OnReady(*found->second);
}

int64_t HttpLoop::NextDeadline() const {
  return deadlines_.empty() ? INT64_MAX : deadlines_.begin()->first;
}

void HttpLoop::TakeMail() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(wake_.get(), &count, sizeof count);
  std::vector<Arrival> arrivals;
  {
    const std::lock_guard lock(mail_mutex_);
    arrivals.swap(arrivals_);
    own_replies_.insert(own_replies_.end(), std::make_move_iterator(replies_.begin()),
                        std::make_move_iterator(replies_.end()));
    replies_.clear();
  }
  for (Arrival& arrival : arrivals) Welcome(std::move(arrival));
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
  connection.keep_alive = connection.reader.head().keep_alive;
  requests_received_.fetch_add(1, std::memory_order_relaxed);
  ++calls_;
  gate_->Begun();
  HttpCall call = CallOf(connection);
  Recount(connection);  // the body is the call's now
  const bool encoded = call.request().headers.Find("Content-Encoding") != nullptr;
  if (!encoded && work_.quick(call.request())) {
    begun_.fetch_add(1, std::memory_order_relaxed);
    return exchange_.Serve(std::move(call));
  }
  const auto shared = std::make_shared<HttpCall>(std::move(call));
  if (pool_->Submit([this, shared] { ServeOnPool(std::move(*shared)); })) return;
  requests_refused_.fetch_add(1, std::memory_order_relaxed);
  // The connection ends too: its next one may find a less loaded server.
  connection.keep_alive = false;
  begun_.fetch_add(1, std::memory_order_relaxed);
  shared->Reply(
      exchange_.Refusal({503, "too many requests are waiting; try again later", kRetryAfterSeconds},
                        &shared->request()));
}

HttpCall HttpLoop::CallOf(Connection& connection) {
  HttpRequest request = RequestExchange::RequestOf(connection.reader.head(), connection.peer);
  request.body = std::move(connection.reader.body());
  request.received_us = connection.received_us;
  const int fd = connection.socket.get();  // stays open until the call is answered
  request.client_gone = [this, fd] { return stopping_ || PeerClosed(fd); };
  return {
      std::move(request),
      [this, id = connection.id](const HttpRequest& asked, std::optional<HttpResponse> response) {
        if (!response)
          response = exchange_.Refusal({500, "the server failed to handle the request"}, &asked);
        Answer(id, *std::move(response));
      }};
}

void HttpLoop::ServeOnPool(HttpCall call) {
  begun_.fetch_add(1, std::memory_order_relaxed);
  if (stopping_) {
    call.Reply(
        exchange_.Refusal({503, "the server is stopping", kRetryAfterSeconds}, &call.request()));
  } else {
    exchange_.Serve(std::move(call));
  }
  Wake();  // the handler may have begun what the source is to be asked for
}

// Any thread. Never sends itself: an answer may come while the connection's request is still being dispatched.
void HttpLoop::Answer(uint64_t connection, HttpResponse response) {
  begun_.fetch_sub(1, std::memory_order_relaxed);
  if (std::this_thread::get_id() == loop_thread_) {
    own_replies_.push_back({connection, std::move(response)});
    return;
  }
  bool first = false;
  {
    const std::lock_guard lock(mail_mutex_);
    first = replies_.empty();
    replies_.push_back({connection, std::move(response)});
  }
  if (first) Wake();
}

void HttpLoop::TakeReplies() {
  std::vector<Reply> replies;
  replies.swap(own_replies_);
  for (const Reply& reply : replies) {
    --calls_;
    gate_->Answered();
    Connection& connection = *connections_.at(reply.connection);
    connection.served = true;
    connection.keep_alive = connection.keep_alive && !draining_ && !stopping_;
    connection.out =
        WriteResponse(reply.response, FramingOf(connection.reader.head(), connection.keep_alive));
    connection.sent = 0;
    TrySend(connection);
    AfterSend(connection);
  }
}

// Answers in the handler's place and ends the connection. May destroy it.
void HttpLoop::Refuse(Connection& connection, const HttpProblem& problem) {
  requests_refused_.fetch_add(1, std::memory_order_relaxed);
  if (connection.reader.has_head()) {
    HttpHead& head = connection.reader.head();
    const HttpRequest request = RequestExchange::RequestOf(head, connection.peer);
    connection.out = WriteResponse(exchange_.Refusal(problem, &request), FramingOf(head, false));
  } else {
    connection.out = WriteResponse(exchange_.Refusal(problem, nullptr), {.keep_alive = false});
  }
  connection.sent = 0;
  connection.keep_alive = false;
  TrySend(connection);
  AfterSend(connection);
}

// Sends what the socket takes now.
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
