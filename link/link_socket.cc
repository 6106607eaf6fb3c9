// ZeroMQ ROUTER at the router's end, DEALER at a host's. Who may connect is decided by the one ZAP handler of the listener's
// context, a thread that answers ZeroMQ's question about each key.
// SPDX-License-Identifier: Apache-2.0
#include "link/link_socket.h"

#include <fcntl.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "link/link_message.h"

namespace sysone {
namespace {

constexpr int kConnectMs = 3'000;
constexpr int kHandshakeMs = 3'000;
// Frames that wait for their reader; beyond them TCP holds the sender back.
constexpr int kReceiveQueue = 1024;
// What encryption adds to a frame: command name, nonce, flags and authenticator are 33.
constexpr int64_t kCurveBytes = 64;
constexpr char kMonitor[] = "inproc://events";
constexpr char kZapEndpoint[] = "inproc://zeromq.zap.01";  // the place that ZeroMQ asks (RFC 27)

struct CloseContext {
  void operator()(void* context) const { zmq_ctx_term(context); }
};
struct CloseSocket {
  void operator()(void* socket) const { zmq_close(socket); }
};
using Context = std::unique_ptr<void, CloseContext>;
using Socket = std::unique_ptr<void, CloseSocket>;

Status ZmqError(const char* what) {
  return Error(Code::kInternal, "ZeroMQ, %s: %s", what, zmq_strerror(errno));
}

Status Set(const Socket& socket, int option, int value) {
  return zmq_setsockopt(socket.get(), option, &value, sizeof value) == 0 ? Status()
                                                                         : ZmqError("an option");
}
Status Set(const Socket& socket, int option, const std::string& value) {
  return zmq_setsockopt(socket.get(), option, value.data(), value.size()) == 0
             ? Status()
             : ZmqError("an option");
}

Result<Socket> MakeSocket(void* context, int type) {
  Socket socket(zmq_socket(context, type));
  if (socket == nullptr) return ZmqError("a socket");
  SYSONE_RETURN_IF_ERROR(Set(socket, ZMQ_LINGER, 0));
  // No bound on what is sent: it is bounded by the jobs of an arena, and beats end with a time-out.
  SYSONE_RETURN_IF_ERROR(Set(socket, ZMQ_SNDHWM, 0));
  SYSONE_RETURN_IF_ERROR(Set(socket, ZMQ_RCVHWM, kReceiveQueue));
  SYSONE_RETURN_IF_ERROR(Set(socket, ZMQ_HANDSHAKE_IVL, kHandshakeMs));
  const int64_t longest = kMaxLinkBytes + kCurveBytes;
  if (zmq_setsockopt(socket.get(), ZMQ_MAXMSGSIZE, &longest, sizeof longest) != 0)
    return ZmqError("an option");
  return socket;
}

Status SetOwnKeys(const Socket& socket, const CurveKeyPair& own) {
  SYSONE_RETURN_IF_ERROR(Set(socket, ZMQ_CURVE_PUBLICKEY, own.public_key));
  return Set(socket, ZMQ_CURVE_SECRETKEY, own.secret_key);
}

// False when nothing is there.
bool ReceivePart(void* socket, std::string& out, bool* more) {
  zmq_msg_t part;
  zmq_msg_init(&part);
  const bool got = zmq_msg_recv(&part, socket, ZMQ_DONTWAIT) >= 0;
  if (got) {
    out.assign(static_cast<const char*>(zmq_msg_data(&part)), zmq_msg_size(&part));
    *more = zmq_msg_more(&part) != 0;
  }
  zmq_msg_close(&part);
  return got;
}

bool ReceiveFrame(void* socket, std::vector<std::byte>& out, bool* more) {
  zmq_msg_t part;
  zmq_msg_init(&part);
  const bool got = zmq_msg_recv(&part, socket, ZMQ_DONTWAIT) >= 0;
  if (got) {
    const auto* const data = static_cast<const std::byte*>(zmq_msg_data(&part));
    out.assign(data, data + zmq_msg_size(&part));
    *more = zmq_msg_more(&part) != 0;
  }
  zmq_msg_close(&part);
  return got;
}

void SkipParts(void* socket, bool more) {
  std::string ignored;
  while (more && ReceivePart(socket, ignored, &more)) {
  }
}

// What the library tells of a socket's connections.
class Monitor {
 public:
  static Result<Monitor> Of(void* context, const Socket& socket) {
    if (zmq_socket_monitor(socket.get(), kMonitor, ZMQ_EVENT_ALL) != 0) return ZmqError("events");
    Socket events(zmq_socket(context, ZMQ_PAIR));
    if (events == nullptr || zmq_connect(events.get(), kMonitor) != 0) return ZmqError("events");
    return Monitor(std::move(events));
  }
  void* socket() const { return events_.get(); }
  // False: no more news.
  bool Take(int* event, uint32_t* value, std::string* address) {
    std::string head;
    bool more = false;
    if (!ReceivePart(events_.get(), head, &more)) return false;
    uint16_t number = 0;
    if (head.size() == 6) {
      std::memcpy(&number, head.data(), 2);
      std::memcpy(value, head.data() + 2, 4);
    }
    *event = number;
    if (more) ReceivePart(events_.get(), *address, &more);
    SkipParts(events_.get(), more);
    return true;
  }

 private:
  explicit Monitor(Socket events) : events_(std::move(events)) {}
  Socket events_;
};

void WaitForAny(void* socket, void* monitor, int wake_fd, int64_t until_us) {
  std::array<zmq_pollitem_t, 3> items{
      {{socket, 0, ZMQ_POLLIN, 0}, {monitor, 0, ZMQ_POLLIN, 0}, {nullptr, wake_fd, ZMQ_POLLIN, 0}}};
  // Milliseconds, rounded up, so that a short wait does not become a busy loop.
  const int64_t left_us = std::clamp<int64_t>(until_us - MonotonicUs(), 0, 60'000'000);
  zmq_poll(items.data(), wake_fd >= 0 ? 3 : 2, static_cast<long>((left_us + 999) / 1'000));
}

// Answers whether a key may connect, until its context is shut down.
class Doorkeeper {
 public:
  static Result<std::unique_ptr<Doorkeeper>> Start(void* context,
                                                   const std::vector<std::string>& allowed) {
    Socket socket(zmq_socket(context, ZMQ_REP));
    if (socket == nullptr || zmq_bind(socket.get(), kZapEndpoint) != 0)
      return ZmqError("the check of keys");
    std::set<std::string> keys;
    for (const std::string& key : allowed) {
      std::string bytes(32, '\0');
      if (zmq_z85_decode(reinterpret_cast<uint8_t*>(bytes.data()), key.c_str()) == nullptr)
        return Error(Code::kInvalidArgument, "'%s' is no key", key.c_str());
      keys.insert(bytes);
    }
    return std::unique_ptr<Doorkeeper>(new Doorkeeper(context, std::move(socket), std::move(keys)));
  }
  ~Doorkeeper() {
    zmq_ctx_shutdown(context_);
    thread_.join();
  }

 private:
  Doorkeeper(void* context, Socket socket, std::set<std::string> allowed)
      : context_(context),
        socket_(std::move(socket)),
        allowed_(std::move(allowed)),
        thread_([this] { Loop(); }) {}

  // RFC 27: | version | request id | domain | address | identity | mechanism | credentials |
  void Loop() {
    std::vector<std::string> parts;
    while (ReceiveAll(parts)) {
      if (parts.size() < 2) parts.resize(2);
      const bool curve = parts.size() == 7 && parts[5] == "CURVE";
      const bool allowed = curve && allowed_.contains(parts[6]);
      if (!allowed)
        SYSONE_WARNING("link: a host at %s was refused: its key %s does not stand in hosts.pub",
                       parts.size() > 3 ? parts[3].c_str() : "?",
                       curve ? Shown(parts[6]).c_str() : "");
      const char* const code = allowed ? "200" : "400";
      const std::array<std::string, 6> reply{"1.0", parts[1], code, allowed ? "" : "unknown key",
                                             "",    ""};
      for (size_t i = 0; i < reply.size(); ++i)
        zmq_send(socket_.get(), reply[i].data(), reply[i].size(),
                 i + 1 < reply.size() ? ZMQ_SNDMORE : 0);
    }
    socket_.reset();
  }

  // False when the context is shut down.
  bool ReceiveAll(std::vector<std::string>& parts) {
    parts.clear();
    for (bool more = true; more;) {
      zmq_msg_t part;
      zmq_msg_init(&part);
      while (zmq_msg_recv(&part, socket_.get(), 0) < 0)
        if (errno != EINTR) return zmq_msg_close(&part), false;
      parts.emplace_back(static_cast<const char*>(zmq_msg_data(&part)), zmq_msg_size(&part));
      more = zmq_msg_more(&part) != 0;
      zmq_msg_close(&part);
    }
    return true;
  }

  static std::string Shown(const std::string& key) {
    char text[41] = "of a wrong length";
    if (key.size() == 32)
      zmq_z85_encode(text, reinterpret_cast<const uint8_t*>(key.data()), key.size());
    return text;
  }

  void* const context_;
  Socket socket_;  // of the thread
  const std::set<std::string> allowed_;
  std::thread thread_;
};

class ZmqListener final : public LinkListener {
 public:
  ZmqListener(Context context, std::unique_ptr<Doorkeeper> doorkeeper, Socket socket,
              Monitor monitor)
      : context_(std::move(context)),
        doorkeeper_(std::move(doorkeeper)),
        socket_(std::move(socket)),
        monitor_(std::move(monitor)) {}

  void Wait(int wake_fd, int64_t until_us) override {
    WaitForAny(socket_.get(), monitor_.socket(), wake_fd, until_us);
    TellNews();
  }

  bool Receive(Peer& from, std::vector<std::byte>& frame) override {
    bool more = false;
    if (!ReceivePart(socket_.get(), from, &more)) return false;
    frame.clear();
    if (more && !ReceiveFrame(socket_.get(), frame, &more)) return false;
    SkipParts(socket_.get(), more);
    return true;
  }

  bool Send(const Peer& to, std::span<const std::byte> frame) override {
    return zmq_send(socket_.get(), to.data(), to.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0 &&
           zmq_send(socket_.get(), frame.data(), frame.size(), ZMQ_DONTWAIT) >= 0;
  }

 private:
  // The doorkeeper tells of unknown keys; what is left are those that have none.
  void TellNews() {
    int event = 0;
    uint32_t value = 0;
    std::string address;
    while (monitor_.Take(&event, &value, &address))
      if (event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL ||
          event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL)
        SYSONE_WARNING("link: somebody connected to %s and was refused: no handshake with keys",
                       address.c_str());
  }

  // Destroyed from the last to the first; a context waits for its sockets.
  Context context_;
  std::unique_ptr<Doorkeeper> doorkeeper_;
  Socket socket_;
  Monitor monitor_;
};

class ZmqConnection final : public LinkConnection {
 public:
  ZmqConnection(Context context, Socket socket, Monitor monitor)
      : context_(std::move(context)), socket_(std::move(socket)), monitor_(std::move(monitor)) {}

  void Wait(int wake_fd, int64_t until_us) override {
    WaitForAny(socket_.get(), monitor_.socket(), wake_fd, until_us);
  }
  bool Receive(std::vector<std::byte>& frame) override {
    bool more = false;
    if (!ReceiveFrame(socket_.get(), frame, &more)) return false;
    SkipParts(socket_.get(), more);
    return true;
  }
  bool Send(std::span<const std::byte> frame) override {
    return broken_.empty() &&
           zmq_send(socket_.get(), frame.data(), frame.size(), ZMQ_DONTWAIT) >= 0;
  }
  const std::string& broken() override {
    int event = 0;
    uint32_t value = 0;
    std::string address;
    while (monitor_.Take(&event, &value, &address))
      if (broken_.empty()) broken_ = Meaning(event, value);
    return broken_;
  }

 private:
  static std::string Meaning(int event, uint32_t value) {
    switch (event) {
      case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
        return Format("the router refused this host's key (%u)", value);
      case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
      case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        return "the handshake failed; is router.pub this router's, and do both ends use keys?";
      case ZMQ_EVENT_CLOSED:
        return "cannot connect";
      case ZMQ_EVENT_DISCONNECTED:
        return "the connection was closed";
      default:
        return "";
    }
  }

  Context context_;
  Socket socket_;
  Monitor monitor_;
  std::string broken_;
};

// A free use of the same port, so that the caller's stays open when ZeroMQ closes its own.
Status BindTo(const Socket& socket, int listen_fd) {
  const int own = fcntl(listen_fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return Error(Code::kInternal, "dup: %s", strerror(errno));
  SYSONE_RETURN_IF_ERROR(Set(socket, ZMQ_USE_FD, own));
  // The address is not looked at, but has to be one.
  if (zmq_bind(socket.get(), "tcp://127.0.0.1:*") == 0) return {};
  const Status status = ZmqError("bind");
  close(own);
  return status;
}

}  // namespace

Result<std::unique_ptr<LinkListener>> LinkListener::Create(int listen_fd,
                                                           const std::optional<LinkKeys>& keys) {
  Context context(zmq_ctx_new());
  if (context == nullptr) return ZmqError("a context");
  std::unique_ptr<Doorkeeper> doorkeeper;
  SYSONE_ASSIGN_OR_RETURN(Socket socket, MakeSocket(context.get(), ZMQ_ROUTER));
  SYSONE_RETURN_IF_ERROR(Set(socket, ZMQ_ROUTER_MANDATORY, 1));
  if (keys) {
    SYSONE_RETURN_IF_ERROR(Set(socket, ZMQ_CURVE_SERVER, 1));
    SYSONE_RETURN_IF_ERROR(SetOwnKeys(socket, keys->own));
    SYSONE_RETURN_IF_ERROR(Set(socket, ZMQ_ZAP_DOMAIN, std::string("sysone")));
    // Before the first connection: without somebody to ask, ZeroMQ lets every key in.
    SYSONE_ASSIGN_OR_RETURN(doorkeeper, Doorkeeper::Start(context.get(), keys->peers));
  }
  SYSONE_ASSIGN_OR_RETURN(Monitor monitor, Monitor::Of(context.get(), socket));
  SYSONE_RETURN_IF_ERROR(BindTo(socket, listen_fd));
  return std::unique_ptr<LinkListener>(std::make_unique<ZmqListener>(
      std::move(context), std::move(doorkeeper), std::move(socket), std::move(monitor)));
}

Result<std::unique_ptr<LinkConnection>> LinkConnection::Connect(
    const std::string& address, const std::optional<LinkKeys>& keys) {
  Context context(zmq_ctx_new());
  if (context == nullptr) return ZmqError("a context");
  SYSONE_ASSIGN_OR_RETURN(Socket socket, MakeSocket(context.get(), ZMQ_DEALER));
  SYSONE_RETURN_IF_ERROR(Set(socket, ZMQ_IPV6, 1));  // names may have both kinds of addresses
  SYSONE_RETURN_IF_ERROR(Set(socket, ZMQ_CONNECT_TIMEOUT, kConnectMs));
  SYSONE_RETURN_IF_ERROR(Set(socket, ZMQ_RECONNECT_IVL, -1));
  if (keys) {
    SYSONE_RETURN_IF_ERROR(SetOwnKeys(socket, keys->own));
    SYSONE_RETURN_IF_ERROR(Set(socket, ZMQ_CURVE_SERVERKEY, keys->peers.front()));
  }
  SYSONE_ASSIGN_OR_RETURN(Monitor monitor, Monitor::Of(context.get(), socket));
  if (zmq_connect(socket.get(), address.c_str()) != 0)
    return Error(Code::kInvalidArgument, "'%s' is no tcp://HOST:PORT: %s", address.c_str(),
                 zmq_strerror(errno));
  return std::unique_ptr<LinkConnection>(
      std::make_unique<ZmqConnection>(std::move(context), std::move(socket), std::move(monitor)));
}

}  // namespace sysone
