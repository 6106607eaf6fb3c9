// A load generator: keep-alive connections that each send the next request when the answer to the last one is there (a closed
// loop), from one thread, so that it takes as little as it can of the machine that it shares with the server.
//
//   load_generator --port N --bodies FILE [--host 127.0.0.1] [--path /v1/systemone] [--connections 1] [--seconds 5 | --requests N]
//                  [--warm-requests N] [--random SEED] [--answer-mark '"type":'] [--check]
//
// FILE holds one JSON request body a line; they are sent in turn, or at random. Prints one JSON object. `answers` are the
// questions that were answered: the mark stands once for each in a response. `outside_us` is what a request took beyond its
// forward pass, which the Server-Timing header tells; `served_us` is the part of it that the server's own clock saw, from the
// request's first byte to the response. --check: equal bodies must get equal answers; a difference counts as an
// error.
//
// A server may close a connection. `reconnects` counts the connections that were made anew to ask on, `unanswered` the requests
// that got no whole answer: because their connection broke, or because nothing came for two minutes, which ends the run. Neither
// is asked again, and both are counted from the first request on, warm ones too. A connection that the server closes when this
// side has nothing to ask any more is neither. Exits with 1 after any error or unanswered request.
// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct Options {
  std::string host = "127.0.0.1";
  int port = 0;
  std::string path = "/v1/systemone";
  std::string bodies;
  size_t connections = 1;
  double seconds = 5;
  uint64_t requests = 0;                  // 0: as many as the time allows
  uint64_t warm_requests = 0;             // not measured
  std::string answer_mark = "\"type\":";  // every answer of a decision says its type
  bool random = false;
  uint64_t seed = 1;
  bool check = false;
};

[[noreturn]] void Die(const std::string& message) {
  fprintf(stderr, "load_generator: %s\n", message.c_str());
  exit(1);
}

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--check") {
      options.check = true;
      continue;
    }
    if (i + 1 == argc) Die(name + " needs a value");
    const char* value = argv[++i];
    if (name == "--host") {
      options.host = value;
    } else if (name == "--port") {
      options.port = atoi(value);
    } else if (name == "--path") {
      options.path = value;
    } else if (name == "--bodies") {
      options.bodies = value;
    } else if (name == "--connections") {
      options.connections = strtoull(value, nullptr, 10);
    } else if (name == "--seconds") {
      options.seconds = atof(value);
    } else if (name == "--requests") {
      options.requests = strtoull(value, nullptr, 10);
    } else if (name == "--warm-requests") {
      options.warm_requests = strtoull(value, nullptr, 10);
    } else if (name == "--answer-mark") {
      options.answer_mark = value;
    } else if (name == "--random") {
      options.random = true;
      options.seed = strtoull(value, nullptr, 10);
    } else {
      Die("no such option: " + name);
    }
  }
  if (options.port == 0 || options.bodies.empty() || options.connections == 0 ||
      options.answer_mark.empty())
    Die("--port, --bodies, a mark and at least one connection are needed");
  return options;
}

// Whole HTTP requests, one a line of the file.
std::vector<std::string> ReadRequests(const Options& options) {
  std::ifstream file(options.bodies);
  if (!file) Die("cannot read " + options.bodies);
  std::vector<std::string> requests;
  for (std::string body; std::getline(file, body);) {
    if (body.empty()) continue;
    requests.push_back("POST " + options.path + " HTTP/1.1\r\nHost: " + options.host +
                       "\r\nContent-Type: application/json\r\nContent-Length: " +
                       std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  if (requests.empty()) Die(options.bodies + " holds no request");
  return requests;
}

// The number behind `key` in `text`; `otherwise` when it is not there.
double NumberAfter(std::string_view text, std::string_view key, double otherwise) {
  const size_t at = text.find(key);
  return at == std::string_view::npos ? otherwise : atof(text.data() + at + key.size());
}

// What equal requests must agree on: the answers, not the id, the time or what was cached.
std::string_view Answers(std::string_view body) {
  const size_t begin = body.find("\"answers\":");
  const size_t end = body.rfind(",\"usage\":");
  return begin == std::string_view::npos || end == std::string_view::npos || end < begin
             ? body
             : body.substr(begin, end - begin);
}

uint64_t Occurrences(std::string_view text, std::string_view mark) {
  uint64_t count = 0;
  for (size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark, at + 1))
    ++count;
  return count;
}

struct Connection {
  int fd = -1;
  bool waiting = false;  // for the answer to `request`
  size_t request = 0;    // which body is asked
  int64_t begin_ns = 0;
  std::string received;
};

class Load {
 public:
  explicit Load(const Options& options)
      : options_(options),
        requests_(ReadRequests(options)),
        random_(options.seed),
        first_answers_(requests_.size()),
        connections_(options.connections),
        epoll_(epoll_create1(0)) {}

  void Run() {
    for (size_t i = 0; i < connections_.size(); ++i) Connect(i);
    begin_ns_ = NowNs();
    for (Connection& connection : connections_) Ask(connection);
    while (waiting_ > 0) {
      std::array<epoll_event, 256> events;
      const int count =
          epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), kSilenceMs);
      if (count == 0) {
        fprintf(stderr, "load_generator: nothing came for %d ms\n", kSilenceMs);
        unanswered_ += waiting_;
        break;
      }
      if (count < 0 && errno != EINTR) Die("epoll_wait");
      for (int i = 0; i < count; ++i)
        OnReady(connections_[events[static_cast<size_t>(i)].data.u64]);
    }
    if (end_ns_ <= begin_ns_) end_ns_ = NowNs();  // nothing was answered
  }

  void Print() {
    std::sort(latencies_us_.begin(), latencies_us_.end());
    std::sort(outside_us_.begin(), outside_us_.end());
    std::sort(served_us_.begin(), served_us_.end());
    const double seconds = static_cast<double>(end_ns_ - begin_ns_) * 1e-9;
    const auto print_count = [](const char* name, uint64_t count) {
      printf("\"%s\": %llu, ", name, static_cast<unsigned long long>(count));
    };
    printf("{\"seconds\": %.3f, ", seconds);
    print_count("connections", connections_.size());
    print_count("asked", begun_);
    print_count("requests", latencies_us_.size());
    print_count("answers", answers_);
    print_count("errors", errors_);
    print_count("unanswered", unanswered_);
    print_count("reconnects", reconnects_);
    printf("\"requests_per_s\": %.2f, \"answers_per_s\": %.2f, ",
           static_cast<double>(latencies_us_.size()) / seconds,
           static_cast<double>(answers_) / seconds);
    PrintQuantiles("latency_us", latencies_us_);
    printf(", ");
    PrintQuantiles("outside_us", outside_us_);
    printf(", ");
    PrintQuantiles("served_us", served_us_);
    printf(", \"statuses\": {");
    const char* comma = "";
    for (const auto& [status, count] : statuses_) {
      printf("%s\"%d\": %llu", comma, status, static_cast<unsigned long long>(count));
      comma = ", ";
    }
    printf("}}\n");
  }

  bool failed() const { return errors_ + unanswered_ > 0; }

 private:
  static constexpr int kSilenceMs = 120'000;

  static void PrintQuantiles(const char* name, const std::vector<float>& sorted) {
    const auto at = [&](double share) {
      if (sorted.empty()) return 0.0;
      const auto index = static_cast<size_t>(share * static_cast<double>(sorted.size()));
      return static_cast<double>(sorted[std::min(index, sorted.size() - 1)]);
    };
    printf("\"%s\": {\"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f, \"max\": %.1f}", name, at(0.5),
           at(0.9), at(0.99), at(1));
  }

  void Connect(size_t index) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(options_.port));
    if (inet_pton(AF_INET, options_.host.c_str(), &address.sin_addr) != 1)
      Die("--host takes an IPv4 address");
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      Die(std::string("cannot connect: ") + std::strerror(errno));
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = index;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) Die("epoll_ctl");
    connections_[index].fd = fd;
  }

  // The seconds begin when the warm requests are done; until then everybody goes on asking.
  bool Over() const {
    if (options_.requests > 0) return begun_ >= options_.requests + options_.warm_requests;
    return done_ >= options_.warm_requests &&
           static_cast<double>(NowNs() - begin_ns_) * 1e-9 >= options_.seconds;
  }

  // Sends the next request, unless the run is over.
  void Ask(Connection& connection) {
    if (Over()) return;
    if (connection.fd < 0) {
      ++reconnects_;
      Connect(static_cast<size_t>(&connection - connections_.data()));
    }
    connection.request =
        static_cast<size_t>(options_.random ? random_() : begun_) % requests_.size();
    ++begun_;
    ++waiting_;
    connection.waiting = true;
    connection.received.clear();
    connection.begin_ns = NowNs();
    const std::string& bytes = requests_[connection.request];
    // The socket blocks, and a server that reads nothing until it has answered the request before does not exist in a
    // closed loop: this waits only for the kernel. Where the server has closed meanwhile, the socket is readable too, and
    // OnReady sees what became of it.
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t count =
          send(connection.fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count < 0 && (errno == EPIPE || errno == ECONNRESET)) return;
      if (count < 0) Die(std::string("send: ") + std::strerror(errno));
      sent += static_cast<size_t>(count);
    }
  }

  void OnReady(Connection& connection) {
    const ssize_t count = recv(connection.fd, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return OnClosed(connection);
    connection.received.append(buffer_.data(), static_cast<size_t>(count));
    const size_t head_end = connection.received.find("\r\n\r\n");
    if (head_end == std::string::npos) return;
    const std::string_view head(connection.received.data(), head_end + 2);
    const double length = NumberAfter(head, "Content-Length: ", -1);
    if (length < 0) Die("a response without Content-Length");
    const size_t total = head_end + 4 + static_cast<size_t>(length);
    if (connection.received.size() < total) return;
    if (!connection.waiting) Die("a response that nobody asked for");
    Record(connection, head, std::string_view(connection.received).substr(head_end + 4));
    if (head.find("\r\nConnection: close") != std::string_view::npos) Close(connection);
    Finish(connection);
  }

  // The server has closed the connection without having said so, or it broke.
  void OnClosed(Connection& connection) {
    Close(connection);
    if (!connection.waiting) return;
    ++unanswered_;
    Finish(connection);
  }

  static void Close(Connection& connection) {
    close(connection.fd);
    connection.fd = -1;
  }

  // The request was answered or never will be: the next one.
  void Finish(Connection& connection) {
    connection.waiting = false;
    --waiting_;
    // The first answers of a run find cold caches.
    if (++done_ == options_.warm_requests) begin_ns_ = NowNs();
    Ask(connection);
  }

  void Record(const Connection& connection, std::string_view head, std::string_view body) {
    const int status = static_cast<int>(NumberAfter(head, "HTTP/1.1 ", 0));
    const bool differs = options_.check && status == 200 && Differs(connection.request, body);
    if (status != 200 || differs) ++errors_;
    if (differs)
      fprintf(stderr, "answers to equal requests differ: %.*s\n", static_cast<int>(body.size()),
              body.data());
    if (done_ < options_.warm_requests) return;
    end_ns_ = NowNs();
    ++statuses_[status];
    const double us = static_cast<double>(end_ns_ - connection.begin_ns) * 1e-3;
    latencies_us_.push_back(static_cast<float>(us));
    if (status != 200) return;
    answers_ += Occurrences(body, options_.answer_mark);
    const double pass_ms = NumberAfter(head, "pass;dur=", -1);
    if (pass_ms < 0) return;
    outside_us_.push_back(static_cast<float>(us - pass_ms * 1e3));
    const double total_ms = NumberAfter(head, "total;dur=", -1);
    if (total_ms >= 0) served_us_.push_back(static_cast<float>((total_ms - pass_ms) * 1e3));
  }

  bool Differs(size_t request, std::string_view body) {
    std::string& first = first_answers_[request];
    if (first.empty()) first = Answers(body);
    return first != Answers(body);
  }

  const Options options_;
  const std::vector<std::string> requests_;
  std::mt19937_64 random_;
  std::vector<std::string> first_answers_;
  std::vector<Connection> connections_;
  const int epoll_;
  std::array<char, 256 << 10> buffer_;
  uint64_t begun_ = 0;
  uint64_t done_ = 0;
  uint64_t waiting_ = 0;
  uint64_t answers_ = 0;
  uint64_t errors_ = 0;
  uint64_t unanswered_ = 0;
  uint64_t reconnects_ = 0;
  int64_t begin_ns_ = 0;
  int64_t end_ns_ = 0;
  std::map<int, uint64_t> statuses_;
  std::vector<float> latencies_us_;
  std::vector<float> outside_us_;
  std::vector<float> served_us_;
};

}  // namespace

int main(int argc, char** argv) {
  Load load(ParseOptions(argc, argv));
  load.Run();
  load.Print();
  return load.failed() ? 1 : 0;
}
