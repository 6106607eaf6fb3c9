// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/group_bell.h"

#include <sched.h>

#include <utility>

#include "base/clock.h"

namespace sysone {
namespace {

// A worker that has just answered looks this long for the next job before it sleeps: a client that asks again at once is back
// by then, and a sleeping processor is slow to wake. Whoever else wants the core gets it after the first part, which is about
// what a wake-up costs. It does so once after every job, so a group without work takes no processor time.
constexpr int64_t kSpinUs = 50;
constexpr int64_t kAwakeUs = 500;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

class GroupDoorbell final : public Doorbell {
 public:
  GroupDoorbell(NoticeBoard notices, std::unique_ptr<Doorbell> socket)
      : notices_(notices), socket_(std::move(socket)) {}

  bool Ring(GroupId group, SlotHandle slot) override {
    if (!notices_.Post(NoticeReceiver::Of(group), slot.index)) return true;
    return socket_->Ring(group, slot);
  }

 private:
  NoticeBoard notices_;
  const std::unique_ptr<Doorbell> socket_;
};

class GroupListener final : public DoorbellListener {
 public:
  GroupListener(Arena& arena, GroupId group, std::unique_ptr<DoorbellListener> socket)
      : slots_(arena.slots()),
        notices_(arena.notices()),
        me_(NoticeReceiver::Of(group)),
        socket_(std::move(socket)) {}

  void Wait(int64_t timeout_us, size_t limit, std::vector<SlotHandle>& out) override {
    out.clear();
    if (timeout_us > 0 && left_.empty() && !notices_.Any(me_)) Sleep(timeout_us, limit, out);
    notices_.Take(me_, left_);
    worked_ = !left_.empty();
    while (out.size() < limit && !left_.empty()) {
      out.push_back({left_.back(), slots_.word(left_.back()).generation});
      left_.pop_back();
    }
  }

 private:
  void Sleep(int64_t timeout_us, size_t limit, std::vector<SlotHandle>& out) {
    const int64_t begin_us = MonotonicUs();
    if (worked_) {
      for (int64_t waited_us = 0; waited_us < kAwakeUs; waited_us = MonotonicUs() - begin_us) {
        if (waited_us < kSpinUs) {
          for (int i = 0; i < 16; ++i) Pause();
        } else {
          sched_yield();
        }
        if (notices_.Any(me_)) return;
      }
    }
    if (socket_ == nullptr) return notices_.WaitOnFutex(me_, begin_us + timeout_us);
    if (notices_.FallAsleepOnSocket(me_)) socket_->Wait(timeout_us, limit, out);
    notices_.WakeUp(me_);
    out.clear();  // the board names the same slots
  }

  SlotPool& slots_;
  NoticeBoard notices_;
  const NoticeReceiver me_;
  const std::unique_ptr<DoorbellListener> socket_;
  std::vector<uint32_t> left_;  // more than the last caller wanted
  bool worked_ = false;         // the last call returned jobs
};

}  // namespace

std::unique_ptr<Doorbell> MakeGroupDoorbell(Arena& arena, std::unique_ptr<Doorbell> socket) {
  return std::make_unique<GroupDoorbell>(arena.notices(), std::move(socket));
}

std::unique_ptr<DoorbellListener> MakeGroupListener(Arena& arena, GroupId group,
                                                    std::unique_ptr<DoorbellListener> socket) {
  return std::make_unique<GroupListener>(arena, group, std::move(socket));
}

}  // namespace sysone
