// Notices: delivered, lost, repeated, stale.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/doorbell.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <thread>

#include "tests/shm_arena/test_arena.h"

namespace sysone {
namespace {

class DoorbellTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/sysone-bell-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    run_dir_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(run_dir_); }

  // Collects until `count` notices came or the deadline passed.
  std::vector<SlotHandle> Collect(DoorbellListener& listener, size_t count) {
    std::vector<SlotHandle> all, some;
    const int64_t deadline_us = Soon();
    while (all.size() < count && MonotonicUs() < deadline_us) {
      listener.Wait(100'000, count, some);
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

  std::string run_dir_;
};

TEST_F(DoorbellTest, NoticesArriveOnceInOrderAndAtTheirGroup) {
  auto first = *DoorbellListener::Bind(run_dir_, kGroup0);
  auto second = *DoorbellListener::Bind(run_dir_, kGroup1);
  auto bell = *Doorbell::Create(run_dir_);
  std::vector<SlotHandle> sent;
  for (uint32_t i = 0; i < 500; ++i) {
    sent.push_back({i, i * 7});
    ASSERT_TRUE(bell->Ring(kGroup0, sent.back()));
  }
  ASSERT_TRUE(bell->Ring(kGroup1, {9, 9}));
  EXPECT_EQ(Collect(*first, sent.size()), sent);
  EXPECT_EQ(Collect(*second, 1), (std::vector<SlotHandle>{{9, 9}}));
  std::vector<SlotHandle> none = {{1, 1}};
  first->Wait(0, 10, none);
  EXPECT_TRUE(none.empty());
}

TEST_F(DoorbellTest, ManyThreadsMayRing) {
  auto listener = *DoorbellListener::Bind(run_dir_, kGroup0);
  auto bell = *Doorbell::Create(run_dir_);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; i < 200; ++i) bell->Ring(kGroup0, {t, i});
    });
  }
  const std::vector<SlotHandle> got = Collect(*listener, 800);
  for (std::thread& thread : threads) thread.join();
  std::set<std::pair<uint32_t, uint32_t>> different;
  for (const SlotHandle slot : got) different.insert({slot.index, slot.generation});
  EXPECT_EQ(different.size(), 800u);
}

TEST_F(DoorbellTest, RingingWithoutAWorkerNeverBlocksAndDropsInTheEnd) {
  auto bell = *Doorbell::Create(run_dir_);
  bool dropped = false;
  for (uint32_t i = 0; i < 100'000 && !dropped; ++i) dropped = !bell->Ring(kGroup0, {i, 0});
  EXPECT_TRUE(dropped);
  EXPECT_FALSE(bell->Ring(GroupId::kNone, {0, 0}));
}

TEST_F(DoorbellTest, AWorkerThatStartsAgainIsRungThroughTheSameDoorbell) {
  auto bell = *Doorbell::Create(run_dir_);
  auto first = *DoorbellListener::Bind(run_dir_, kGroup0);
  ASSERT_TRUE(bell->Ring(kGroup0, {1, 1}));
  ASSERT_EQ(Collect(*first, 1).size(), 1u);
  first.reset();
  // What a killed worker leaves: its socket file.
  const std::string path = *GroupSocketPath(run_dir_, kGroup0);
  if (FILE* stale = std::fopen(path.c_str(), "w")) std::fclose(stale);
  auto second = *DoorbellListener::Bind(run_dir_, kGroup0);
  std::vector<SlotHandle> got;
  const int64_t deadline_us = Soon();
  for (uint32_t i = 0; got.empty() && MonotonicUs() < deadline_us;
       ++i) {  // some are lost with the old connection
    bell->Ring(kGroup0, {2, i});
    second->Wait(10'000, 100, got);
  }
  ASSERT_FALSE(got.empty());
  EXPECT_EQ(got[0].index, 2u);
}

TEST_F(DoorbellTest, ForeignMessagesAreDropped) {
  auto listener = *DoorbellListener::Bind(run_dir_, kGroup0);
  void* context = zmq_ctx_new();
  void* socket = zmq_socket(context, ZMQ_PUSH);
  const int linger = 0;
  zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
  ASSERT_EQ(zmq_connect(socket, ("ipc://" + *GroupSocketPath(run_dir_, kGroup0)).c_str()), 0);
  const char noise[64] = "not a notice at all";
  for (const size_t bytes : {size_t{0}, size_t{15}, size_t{16}, size_t{17}, size_t{64}}) {
    ASSERT_EQ(zmq_send(socket, noise, bytes, 0), static_cast<int>(bytes));
  }
  auto bell = *Doorbell::Create(run_dir_);
  ASSERT_TRUE(bell->Ring(kGroup0, {5, 6}));
  EXPECT_EQ(Collect(*listener, 1), (std::vector<SlotHandle>{{5, 6}}));
  std::vector<SlotHandle> rest;
  listener->Wait(20'000, 10, rest);
  EXPECT_TRUE(rest.empty());
  zmq_close(socket);
  zmq_ctx_term(context);
}

TEST_F(DoorbellTest, ALostNoticeIsFoundByTheSweepAndARepeatedOneIsRefused) {
  Arena arena = Arena::InMemory(SmallConfig());
  const ProcessId owner = AddProcess(arena, ProcessRole::kApiServer, 0);
  auto listener = *DoorbellListener::Bind(run_dir_, kGroup0);
  auto bell = *Doorbell::Create(run_dir_);
  const SlotHandle rung = *arena.slots().Claim(owner, 1), lost = *arena.slots().Claim(owner, 1);
  ASSERT_TRUE(arena.slots().Publish(rung, kGroup0, {}));
  ASSERT_TRUE(arena.slots().Publish(lost, kGroup0, {}));
  for (int twice = 0; twice < 2; ++twice) ASSERT_TRUE(bell->Ring(kGroup0, rung));
  int taken = 0;
  for (const SlotHandle slot : Collect(*listener, 2))
    taken += arena.slots().Take(slot, kGroup0) ? 1 : 0;
  EXPECT_EQ(taken, 1);
  EXPECT_EQ(arena.slots().ReadySlots(kGroup0), std::vector<SlotHandle>{lost});
}

TEST_F(DoorbellTest, PathsThatAreTooLongAreRefusedWithTheReason) {
  const std::string longest(107 - std::string("/group-0.ipc").size(), 'x');
  EXPECT_TRUE(GroupSocketPath(longest, kGroup0).ok());
  const auto refused = GroupSocketPath(longest + "x", kGroup0);
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("107"), std::string::npos);
  EXPECT_FALSE(DoorbellListener::Bind(longest + "x", kGroup0).ok());
  EXPECT_EQ(DoorbellListener::Bind(run_dir_ + "/absent", kGroup0).status().code(),
            Code::kInvalidArgument);
}

TEST_F(DoorbellTest, TheRunDirectoryIsMadeForThisUserAlone) {
  EXPECT_EQ(DefaultRunDir("", 1000, "port-8000"), "/tmp/sysone-1000/port-8000");
  EXPECT_EQ(DefaultRunDir("/run/user/1000", 1000, "a"), "/run/user/1000/sysone-a");
  const std::string made = run_dir_ + "/a/b";
  ASSERT_TRUE(MakeRunDir(made).ok());
  ASSERT_TRUE(MakeRunDir(made).ok()) << "again";
  struct stat info;
  ASSERT_EQ(stat(made.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  if (FILE* file = std::fopen((run_dir_ + "/file").c_str(), "w")) std::fclose(file);
  EXPECT_EQ(MakeRunDir(run_dir_ + "/file").code(), Code::kInvalidArgument);
  ASSERT_EQ(symlink(made.c_str(), (run_dir_ + "/link").c_str()), 0);
  EXPECT_EQ(MakeRunDir(run_dir_ + "/link").code(), Code::kInvalidArgument)
      << "a link may lead to another user's";
}

}  // namespace
}  // namespace sysone
