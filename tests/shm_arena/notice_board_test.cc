// Notices: each slot once, nobody left asleep. Also built with the thread sanitizer.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/notice_board.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "shm_arena/wake_socket.h"
#include "tests/shm_arena/test_arena.h"

namespace sysone {
namespace {

// More slots than the summary has bits for words, so that a bit of it stands for two words.
constexpr uint32_t kSlots = 64 * 64 + 200;
const NoticeReceiver kMe = NoticeReceiver::Of(kGroup0);

class NoticeBoardTest : public testing::Test {
 protected:
  // A small block a slot would be 17 MiB; nothing touches the payload.
  Arena arena_ = Arena::InMemory(SmallConfig(kSlots - 1, 1));
  NoticeBoard board_ = arena_.notices();
};

TEST_F(NoticeBoardTest, TellsEverySlotOnceAndOnlyToItsReceiver) {
  const NoticeReceiver other = NoticeReceiver::Of(ProcessId{0});
  std::vector<uint32_t> slots;
  board_.Take(kMe, slots);
  EXPECT_TRUE(slots.empty());
  EXPECT_FALSE(board_.Any(kMe));
  for (uint32_t slot = 0; slot < kSlots; ++slot) EXPECT_FALSE(board_.Post(kMe, slot));
  EXPECT_FALSE(board_.Post(kMe, 7)) << "told twice";
  EXPECT_FALSE(board_.Post(other, 4200));
  EXPECT_TRUE(board_.Any(kMe));
  board_.Take(kMe, slots);
  std::sort(slots.begin(), slots.end());
  ASSERT_EQ(slots.size(), kSlots);
  for (uint32_t slot = 0; slot < kSlots; ++slot) EXPECT_EQ(slots[slot], slot);
  EXPECT_FALSE(board_.Any(kMe));
  slots.clear();
  board_.Take(other, slots);
  EXPECT_EQ(slots, std::vector<uint32_t>{4200});
}

TEST_F(NoticeBoardTest, AReceiverWithNoticesDoesNotSleep) {
  EXPECT_FALSE(board_.Post(kMe, 1));
  board_.WaitOnFutex(kMe, Soon());
  EXPECT_FALSE(board_.FallAsleepOnSocket(kMe));
  board_.WakeUp(kMe);
  std::vector<uint32_t> slots;
  board_.Take(kMe, slots);
  const int64_t begin_us = MonotonicUs();
  board_.WaitOnFutex(kMe, begin_us + 1'000);
  EXPECT_GE(MonotonicUs() - begin_us, 1'000);
}

TEST_F(NoticeBoardTest, OfManySendersOneWakesAReceiverOnItsSocket) {
  EXPECT_FALSE(board_.Post(kMe, 1)) << "it is awake";
  std::vector<uint32_t> slots;
  board_.Take(kMe, slots);
  EXPECT_TRUE(board_.FallAsleepOnSocket(kMe));
  EXPECT_TRUE(board_.Post(kMe, 2));
  EXPECT_FALSE(board_.Post(kMe, 3));
  board_.WakeUp(kMe);
}

// A receiver that sleeps without a time-out, and senders that send the next notice only when the last one has arrived: one
// lost wake-up would stop them all.
TEST_F(NoticeBoardTest, NoWakeUpIsLost) {
  constexpr uint32_t kSenders = 3;
  constexpr uint32_t kRounds = 4'000;
  std::atomic<uint32_t> arrived[kSenders] = {};
  std::vector<std::thread> senders;
  std::atomic<bool> in_time = true;
  for (uint32_t s = 0; s < kSenders; ++s) {
    senders.emplace_back([&, s] {
      for (uint32_t round = 1; round <= kRounds && in_time; ++round) {
        EXPECT_FALSE(board_.Post(kMe, s * 1000));
        const int64_t deadline_us = Soon();
        while (arrived[s] != round) {
          std::this_thread::yield();
          if (MonotonicUs() > deadline_us) in_time = false, arrived[s] = round;
        }
      }
    });
  }
  std::vector<uint32_t> slots;
  for (uint32_t received = 0; received < kSenders * kRounds && in_time;) {
    board_.WaitOnFutex(kMe, Soon());
    slots.clear();
    board_.Take(kMe, slots);
    for (const uint32_t slot : slots) arrived[slot / 1000].fetch_add(1);
    received += static_cast<uint32_t>(slots.size());
  }
  for (std::thread& sender : senders) sender.join();
  EXPECT_TRUE(in_time);
}

TEST_F(NoticeBoardTest, WakesAnotherProcessOnItsFutexAndOnItsSocket) {
  char folder[] = "/tmp/sysone-wake-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const ProcessId process{5};
  const NoticeReceiver me = NoticeReceiver::Of(process);
  {
    WakeSocket socket = *WakeSocket::Bind(folder, process);
    const pid_t child = fork();
    if (child == 0) {
      NoticeBoard board = arena_.notices();
      const ProcessWaker waker(folder);
      for (uint32_t slot = 0; slot < 400; ++slot) {
        if (board.Post(me, slot)) waker.Wake(process);
        if (slot % 3 == 0) usleep(50);  // lets the receiver fall asleep now and then
      }
      _exit(0);
    }
    std::vector<uint32_t> slots;
    for (const int64_t deadline_us = Soon(); slots.size() < 400 && MonotonicUs() < deadline_us;) {
      if (slots.size() % 2 == 0) {
        board_.WaitOnFutex(me, deadline_us);
      } else if (board_.FallAsleepOnSocket(me)) {
        pollfd readable{socket.fd(), POLLIN, 0};
        EXPECT_EQ(poll(&readable, 1, 20'000), 1);
      }
      board_.WakeUp(me);
      socket.Drain();
      board_.Take(me, slots);
    }
    EXPECT_EQ(slots.size(), 400u);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder)) << "the socket's file is left";
  const ProcessWaker waker(folder);
  waker.Wake(process);  // nobody there: no harm
  // A process that takes a dead one's place is woken by those who woke the dead one.
  for (int life = 0; life < 3; ++life) {
    WakeSocket socket = *WakeSocket::Bind(folder, process);
    for (int wake = 0; wake < 2; ++wake) {
      waker.Wake(process);
      pollfd readable{socket.fd(), POLLIN, 0};
      EXPECT_EQ(poll(&readable, 1, 20'000), 1) << "life " << life << ", wake-up " << wake;
      socket.Drain();
    }
  }
  EXPECT_FALSE(WakeSocket::Bind(std::string(folder) + "/" + std::string(100, 'x'), process).ok());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sysone
