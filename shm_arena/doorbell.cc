// ZeroMQ PUSH and PULL over ipc. A notice is 16 bytes: | slot u32 | generation u32 | magic u64 |.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/doorbell.h"

#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "shm_arena/slot_word.h"

namespace sysone {
namespace {

struct Notice {
  uint32_t slot;
  uint32_t generation;
  uint64_t magic;
};
static_assert(sizeof(Notice) == 16);
constexpr uint64_t kNoticeMagic = 0x4c4c45424e4f5953;  // "SYONBELL"

// More than the slots of an arena of the default size, so that a notice is dropped only when nobody
// reads.
constexpr int kQueuedNotices = 4096;
// A worker that starts again is found within this time; the sweep covers the time before.
constexpr int kReconnectMs = 10;
constexpr int kLongestReconnectMs = 200;
constexpr size_t kLongestSocketPath = 107;  // sizeof sockaddr_un::sun_path - 1

struct CloseContext {
  void operator()(void* context) const { zmq_ctx_term(context); }
};
struct CloseSocket {
  void operator()(void* socket) const { zmq_close(socket); }
};
using Context = std::unique_ptr<void, CloseContext>;
using Socket = std::unique_ptr<void, CloseSocket>;

// nullptr when ZeroMQ has no more sockets.
Socket MakeSocket(void* context, int type) {
  Socket socket(zmq_socket(context, type));
  if (socket == nullptr) return socket;
  const auto set = [&](int option, int value) {
    zmq_setsockopt(socket.get(), option, &value, sizeof value);
  };
  set(ZMQ_LINGER, 0);
  set(ZMQ_SNDHWM, kQueuedNotices);
  set(ZMQ_RCVHWM, kQueuedNotices);
  set(ZMQ_RECONNECT_IVL, kReconnectMs);
  set(ZMQ_RECONNECT_IVL_MAX, kLongestReconnectMs);
  return socket;
}

class ZmqDoorbell : public Doorbell {
 public:
  ZmqDoorbell(Context context, std::string run_dir)
      : context_(std::move(context)), run_dir_(std::move(run_dir)) {}

  bool Ring(GroupId group, SlotHandle slot) override {
    const Notice notice = {slot.index, slot.generation, kNoticeMagic};
    const std::lock_guard lock(mutex_);  // a socket may change threads behind a full fence
    void* socket = Connected(group);
    return socket != nullptr &&
           zmq_send(socket, &notice, sizeof notice, ZMQ_DONTWAIT) == sizeof notice;
  }

 private:
  void* Connected(GroupId group) {
    if (Index(group) >= kMaxGroups) return nullptr;
    Socket& socket = sockets_[Index(group)];
    if (socket != nullptr) return socket.get();
    const Result<std::string> path = GroupSocketPath(run_dir_, group);
    if (!path.ok()) return nullptr;
    Socket fresh = MakeSocket(context_.get(), ZMQ_PUSH);
    if (fresh == nullptr || zmq_connect(fresh.get(), ("ipc://" + *path).c_str()) != 0)
      return nullptr;
    socket = std::move(fresh);
    return socket.get();
  }

  std::mutex mutex_;
  Context context_;  // before the sockets: they are closed first
  std::array<Socket, kMaxGroups> sockets_;
  std::string run_dir_;
};

class ZmqListener : public DoorbellListener {
 public:
  ZmqListener(Context context, Socket socket)
      : context_(std::move(context)), socket_(std::move(socket)) {}

  void Wait(int64_t timeout_us, size_t limit, std::vector<SlotHandle>& out) override {
    out.clear();
    zmq_pollitem_t item = {socket_.get(), 0, ZMQ_POLLIN, 0};
    // ZeroMQ counts milliseconds: round up, so that a short wait does not become a busy loop.
    const int64_t timeout_ms = (std::max<int64_t>(timeout_us, 0) + 999) / 1'000;
    if (zmq_poll(&item, 1, static_cast<long>(timeout_ms)) <= 0)
      return;  // nothing, or a signal came
    while (out.size() < limit) {
      Notice notice;
      const int bytes = zmq_recv(socket_.get(), &notice, sizeof notice, ZMQ_DONTWAIT);
      if (bytes < 0) return;
      if (bytes != sizeof notice || notice.magic != kNoticeMagic)
        continue;  // not ours; the sweep loses nothing
      out.push_back({notice.slot, notice.generation});
    }
  }

 private:
  Context context_;
  Socket socket_;
};

}  // namespace

std::string DefaultRunDir(const std::string& xdg_runtime_dir, uint32_t uid,
                          const std::string& instance) {
  if (!xdg_runtime_dir.empty()) return xdg_runtime_dir + "/sysone-" + instance;
  return "/tmp/sysone-" + std::to_string(uid) + "/" + instance;
}

Status MakeRunDir(const std::string& run_dir) {
  for (size_t slash = run_dir.find('/', 1);; slash = run_dir.find('/', slash + 1)) {
    const std::string folder = run_dir.substr(0, slash);
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
      return Error(Code::kInvalidArgument, "the folder %s cannot be made: %s", folder.c_str(),
                   std::strerror(errno));
    }
    if (slash == std::string::npos) break;
  }
  struct stat info;
  if (lstat(run_dir.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid()) {
    return Error(Code::kInvalidArgument, "%s is not a folder of this user", run_dir.c_str());
  }
  return {};
}

Result<std::string> GroupSocketPath(const std::string& run_dir, GroupId group) {
  std::string path = run_dir + "/group-" + std::to_string(Index(group)) + ".ipc";
  if (path.size() > kLongestSocketPath) {
    return Error(Code::kInvalidArgument,
                 "the socket path %s has %zu bytes, the system takes %zu: choose a shorter run "
                 "directory or instance "
                 "name",
                 path.c_str(), path.size(), kLongestSocketPath);
  }
  return path;
}

Result<std::unique_ptr<Doorbell>> Doorbell::Create(const std::string& run_dir) {
  Context context(zmq_ctx_new());
  if (context == nullptr) return Error(Code::kInternal, "ZeroMQ: %s", zmq_strerror(errno));
  return std::unique_ptr<Doorbell>(std::make_unique<ZmqDoorbell>(std::move(context), run_dir));
}

Result<std::unique_ptr<DoorbellListener>> DoorbellListener::Bind(const std::string& run_dir,
                                                                 GroupId group) {
  SYSONE_ASSIGN_OR_RETURN(const std::string path, GroupSocketPath(run_dir, group));
  Context context(zmq_ctx_new());
  if (context == nullptr) return Error(Code::kInternal, "ZeroMQ: %s", zmq_strerror(errno));
  Socket socket = MakeSocket(context.get(), ZMQ_PULL);
  if (socket == nullptr) return Error(Code::kInternal, "ZeroMQ: %s", zmq_strerror(errno));
  unlink(path.c_str());  // left by a dead worker; the process table keeps two living ones apart
  if (zmq_bind(socket.get(), ("ipc://" + path).c_str()) != 0) {
    return Error(Code::kInvalidArgument, "the socket %s cannot be bound: %s", path.c_str(),
                 zmq_strerror(errno));
  }
  return std::unique_ptr<DoorbellListener>(
      std::make_unique<ZmqListener>(std::move(context), std::move(socket)));
}

}  // namespace sysone
