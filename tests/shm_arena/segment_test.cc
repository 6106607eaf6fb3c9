// Creation, attachment and recovery of the named segment.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/segment.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "tests/shm_arena/test_arena.h"

namespace sysone {
namespace {

std::string Path(const std::string& instance) { return "/" + SegmentName(instance); }

bool Exists(const std::string& instance) {
  const int file = shm_open(Path(instance).c_str(), O_RDONLY, 0);
  if (file >= 0) close(file);
  return file >= 0;
}

class SegmentTest : public testing::Test {
 protected:
  void SetUp() override {
    static int count = 0;
    instance_ = "segment-test-" + std::to_string(getpid()) + "-" + std::to_string(count++);
    ASSERT_FALSE(Exists(instance_));
  }
  void TearDown() override { shm_unlink(Path(instance_).c_str()); }

  // Runs `child` in a forked process, which kills itself at its end, and waits for that.
  template <class Child>
  void Crash(Child child) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      child();
      _exit(1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed before its crash";
  }
  void LeaveARouterlessArena() {
    Crash([&] {
      Result<Arena> arena = Arena::Create(instance_, SmallConfig());
      if (arena.ok() && arena->Register(ProcessRole::kRouter, 0).ok()) kill(getpid(), SIGKILL);
    });
    ASSERT_TRUE(Exists(instance_));
  }

  std::string instance_;
};

TEST_F(SegmentTest, TwoMappingsShareTheBytesAndTheNameGoesWithTheRouter) {
  {
    Result<Arena> router = Arena::Create(instance_, SmallConfig());
    ASSERT_TRUE(router.ok()) << router.status().message();
    Result<Arena> worker = Arena::Attach(instance_, 0);
    ASSERT_TRUE(worker.ok()) << worker.status().message();
    ASSERT_TRUE(router->Register(ProcessRole::kRouter, 0).ok());
    ASSERT_TRUE(worker->Register(ProcessRole::kWorker, 0).ok());
    const SlotHandle slot = *router->slots().Claim(router->self(), 10);
    router->slots().payload(slot)[9] = std::byte{7};
    ASSERT_TRUE(router->slots().Publish(slot, kGroup0, {}));
    ASSERT_TRUE(worker->slots().Take(slot, kGroup0));
    EXPECT_EQ(worker->slots().payload(slot)[9], std::byte{7});
  }
  EXPECT_FALSE(Exists(instance_));
}

TEST_F(SegmentTest, ASecondRouterOfALiveInstanceIsRefused) {
  Result<Arena> first = Arena::Create(instance_, SmallConfig());
  ASSERT_TRUE(first.ok());
  const Result<Arena> second = Arena::Create(instance_, SmallConfig());
  EXPECT_EQ(second.status().code(), Code::kUnavailable);
  EXPECT_NE(second.status().message().find("pid " + std::to_string(getpid())), std::string::npos)
      << second.status().message();
  EXPECT_EQ(Arena::Adopt(instance_).status().code(), Code::kUnavailable);
  EXPECT_TRUE(Exists(instance_));
}

TEST_F(SegmentTest, TheSegmentOfADeadInstanceIsReplaced) {
  LeaveARouterlessArena();
  Result<Arena> next = Arena::Create(instance_, SmallConfig(8, 2));
  ASSERT_TRUE(next.ok()) << next.status().message();
  EXPECT_EQ(next->slots().slot_count(), 10u);
  EXPECT_EQ(next->processes().lines_used(), 0u);
}

TEST_F(SegmentTest, AHalfMadeOrForeignSegmentIsReplacedAndNeverAdoptedOrAttached) {
  for (const off_t bytes : {off_t{0}, off_t{100}, off_t{4 << 20}}) {
    const int file = shm_open(Path(instance_).c_str(), O_CREAT | O_RDWR, 0600);
    ASSERT_GE(file, 0);
    ASSERT_EQ(ftruncate(file, bytes), 0);
    close(file);
    EXPECT_EQ(Arena::Attach(instance_, 2'000).status().code(), Code::kUnavailable);
    EXPECT_EQ(Arena::Adopt(instance_).status().code(), Code::kCorrupt);
    EXPECT_TRUE(Arena::Create(instance_, SmallConfig()).ok());
    EXPECT_FALSE(Exists(instance_));
  }
}

TEST_F(SegmentTest, ANewRouterAdoptsAnArenaWhoseChildrenLiveWithAllTheirWork) {
  LeaveARouterlessArena();
  Result<Arena> child = Arena::Attach(instance_, 0);
  ASSERT_TRUE(child.ok());
  ASSERT_TRUE(child->Register(ProcessRole::kApiServer, 0).ok());
  const SlotHandle slot = *child->slots().Claim(child->self(), 1);

  const Result<Arena> refused = Arena::Create(instance_, SmallConfig());
  EXPECT_EQ(refused.status().code(), Code::kUnavailable);
  EXPECT_NE(refused.status().message().find("api_server pid " + std::to_string(getpid())),
            std::string::npos)
      << refused.status().message();

  Result<Arena> router = Arena::Adopt(instance_);
  ASSERT_TRUE(router.ok()) << router.status().message();
  ASSERT_TRUE(router->Register(ProcessRole::kRouter, 0).ok());
  const std::vector<Arena::Recovered> dead = router->RecoverDead();
  ASSERT_EQ(dead.size(), 1u);
  EXPECT_EQ(dead[0].process.role, ProcessRole::kRouter);
  EXPECT_EQ(router->slots().word(slot.index).state, SlotState::kClaimed);
  EXPECT_EQ(Arena::Adopt(instance_).status().code(), Code::kUnavailable);
}

TEST_F(SegmentTest, AdoptingNothingSaysSo) {
  EXPECT_EQ(Arena::Adopt(instance_).status().code(), Code::kNotFound);
}

TEST_F(SegmentTest, AttachWaitsForTheRouterAndGivesUpInTime) {
  const int64_t start_us = MonotonicUs();
  EXPECT_EQ(Arena::Attach(instance_, 5'000).status().code(), Code::kUnavailable);
  EXPECT_GE(MonotonicUs() - start_us, 5'000);

  Status attached = Error(Code::kInternal, "not run");
  std::thread child([&] { attached = Arena::Attach(instance_, 20'000'000).status(); });
  Result<Arena> router = Arena::Create(instance_, SmallConfig());
  child.join();
  ASSERT_TRUE(router.ok());
  EXPECT_TRUE(attached.ok()) << attached.message();
}

TEST_F(SegmentTest, AnArenaOfAnotherBuildOrWithAChangedHeaderIsRefused) {
  Result<Arena> router = Arena::Create(instance_, SmallConfig());
  ASSERT_TRUE(router.ok());
  ArenaHeader* header = router->header();
  const auto refused_while = [&](auto& field, auto wrong) {
    const auto right = field;
    field = wrong;
    const Code code = Arena::Attach(instance_, 0).status().code();
    field = right;
    return code == Code::kCorrupt;
  };
  EXPECT_TRUE(refused_while(header->version, kArenaVersion + 1));
  EXPECT_TRUE(refused_while(header->layout_hash, uint64_t{1}));
  EXPECT_TRUE(refused_while(header->class_count, kMaxSlotClasses + 1));
  EXPECT_TRUE(refused_while(header->class_count, 0u));
  EXPECT_TRUE(refused_while(header->total_bytes, header->total_bytes + 4096));
  EXPECT_TRUE(refused_while(header->classes[0].slots, 1u << 20));
  EXPECT_TRUE(refused_while(header->classes[0].block_bytes, uint64_t{100}));
  EXPECT_TRUE(refused_while(header->classes[1].payload_offset, uint64_t{0}));
  EXPECT_TRUE(refused_while(header->classes[1].first_slot, 0u));
  header->magic.store(42);
  EXPECT_EQ(Arena::Attach(instance_, 0).status().code(), Code::kCorrupt);
  header->magic.store(kArenaMagic);
  EXPECT_TRUE(Arena::Attach(instance_, 0).ok());
}

TEST_F(SegmentTest, WhenSharedMemoryIsTooSmallTheErrorNamesNeedSpaceAndFlag) {
  struct statvfs space;
  ASSERT_EQ(statvfs("/dev/shm", &space), 0);
  ArenaConfig config = SmallConfig();
  config.classes[1].block_bytes = AlignUp(space.f_blocks * space.f_frsize, kPageBytes);
  if (space.f_blocks == 0) GTEST_SKIP() << "/dev/shm has no limit here";
  const Result<Arena> arena = Arena::Create(instance_, config);
  EXPECT_EQ(arena.status().code(), Code::kOutOfMemory);
  const std::string message = arena.status().message();
  EXPECT_NE(message.find(std::to_string(ArenaRegions::Of(config).total_bytes)), std::string::npos)
      << message;
  EXPECT_NE(message.find("--shm-arena-mb"), std::string::npos) << message;
  EXPECT_NE(message.find("free"), std::string::npos) << message;
  EXPECT_FALSE(Exists(instance_));
}

TEST_F(SegmentTest, EveryPageIsBackedAtCreation) {
  Result<Arena> arena = Arena::Create(instance_, SmallConfig(64, 64));
  ASSERT_TRUE(arena.ok());
  const int file = shm_open(Path(instance_).c_str(), O_RDONLY, 0);
  struct stat info;
  ASSERT_EQ(fstat(file, &info), 0);
  close(file);
  EXPECT_EQ(static_cast<uint64_t>(info.st_size), arena->bytes());
  EXPECT_GE(static_cast<uint64_t>(info.st_blocks) * 512, arena->bytes());
}

TEST(InstanceNameTest, OnlyPlainNamesAreTaken) {
  EXPECT_TRUE(CheckInstanceName("port-8000").ok());
  EXPECT_TRUE(CheckInstanceName(std::string(64, 'a')).ok());
  for (const std::string& name : {std::string(), std::string("a/b"), std::string(".."),
                                  std::string("a b"), std::string(65, 'a')}) {
    EXPECT_EQ(CheckInstanceName(name).code(), Code::kInvalidArgument) << name;
  }
}

TEST(ArenaConfigTest, TheDefaultFitsTheSharedMemoryOfAContainer) {
  const ArenaConfig config = *ArenaConfig::ForMegabytes(kDefaultArenaMegabytes);
  EXPECT_TRUE(config.Validate().ok());
  EXPECT_EQ(config.classes[0], (SlotClassConfig{1024, 16384}));
  EXPECT_EQ(config.classes[1], (SlotClassConfig{64, 262144}));
  EXPECT_EQ(config.classes[2], (SlotClassConfig{4, 4194304}));
  EXPECT_LT(ArenaRegions::Of(config).total_bytes, uint64_t{60} << 20);
}

TEST(ArenaConfigTest, EverySizeThatTheFlagTakesIsValidAndTooLittleIsRefused) {
  EXPECT_EQ(ArenaConfig::ForMegabytes(11).status().code(), Code::kInvalidArgument);
  for (uint32_t megabytes : {12u, 13u, 64u, 1000u, 1u << 14}) {
    const Result<ArenaConfig> config = ArenaConfig::ForMegabytes(megabytes);
    ASSERT_TRUE(config.ok()) << megabytes;
    EXPECT_TRUE(config->Validate().ok()) << megabytes;
    // Slot headers and bits: 2 % of the payload. Beside them, what does not depend on its size.
    EXPECT_LE(ArenaRegions::Of(*config).total_bytes,
              (uint64_t{megabytes} << 20) * 102 / 100 + sizeof(PrefixRegion) + (1 << 20))
        << megabytes;
  }
}

TEST(ArenaConfigTest, TheSizeForAQueueHoldsItsRequestsAndTokens) {
  EXPECT_EQ(ArenaConfig::ForQueue(1024, 2'000'000), *ArenaConfig::ForMegabytes(48));
  const ArenaConfig many = ArenaConfig::ForQueue(10'000, 2'000'000);
  EXPECT_GE(many.classes[0].slots, 10'000u);
  const ArenaConfig deep = ArenaConfig::ForQueue(10, 100'000'000);
  EXPECT_GE(deep.classes[1].slots * deep.classes[1].block_bytes +
                deep.classes[2].slots * deep.classes[2].block_bytes,
            4u * 100'000'000);
}

TEST(ArenaConfigTest, RulesOfTheClassesAreChecked) {
  const auto broken = [](auto change) {
    ArenaConfig config = SmallConfig();
    change(config);
    return config.Validate().code() == Code::kInvalidArgument;
  };
  EXPECT_TRUE(broken([](ArenaConfig& c) { c.class_count = 0; }));
  EXPECT_TRUE(broken([](ArenaConfig& c) { c.class_count = kMaxSlotClasses + 1; }));
  EXPECT_TRUE(broken([](ArenaConfig& c) { c.classes[0].slots = 0; }));
  EXPECT_TRUE(broken([](ArenaConfig& c) { c.classes[0].slots = 1u << 25; }));
  EXPECT_TRUE(broken([](ArenaConfig& c) { c.classes[0].block_bytes = 4097; }));
  EXPECT_TRUE(broken([](ArenaConfig& c) { c.classes[1].block_bytes = 4096; }));
  EXPECT_FALSE(broken([](ArenaConfig&) {}));
}

}  // namespace
}  // namespace sysone
