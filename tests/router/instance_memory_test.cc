// SPDX-License-Identifier: Apache-2.0
#include "router/instance_memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace sysone {
namespace {

TEST(InstanceMemory, BeginsWithoutChildrenAndStopRequests) {
  const InstanceMemory memory;
  EXPECT_EQ(memory.record().child_count, 0u);
  EXPECT_EQ(memory.stop_requests(), 0);
}

TEST(InstanceMemory, AForkedProcessLeavesItsRecordToItsParent) {
  InstanceMemory memory;
  const pid_t child = fork();
  if (child == 0) {
    SupervisionRecord record;
    record.child_count = 2;
    record.children[1].process = {77};
    record.children[1].life.Started(5);
    memory.Save(record);
    kill(getpid(), SIGKILL);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(memory.record().child_count, 2u);
  EXPECT_EQ(memory.record().children[1].process, ProcessIdentity{77});
  EXPECT_EQ(memory.record().children[1].life.state(), ChildLife::State::kRunning);
}

TEST(InstanceMemory, AWriterThatIsKilledAnywhereLeavesAWholeRecord) {
  InstanceMemory memory;
  for (int round = 0; round < 30; ++round) {
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    const pid_t child = fork();
    if (child == 0) {
      // All processes of a record are the same, so a mixture of two records shows.
      SupervisionRecord record = memory.record();
      record.child_count = kMaxProcesses;
      for (uint64_t value = record.children[0].process.word + 1;; ++value) {
        for (ChildRecord& each : record.children) each.process.word = value;
        memory.Save(record);
        [[maybe_unused]] const ssize_t written = write(told[1], "x", value % 64 == 0 ? 1 : 0);
      }
    }
    char byte = 0;
    EXPECT_EQ(read(told[0], &byte, 1), 1);
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    close(told[0]);
    close(told[1]);
    const SupervisionRecord& record = memory.record();
    ASSERT_EQ(record.child_count, kMaxProcesses);
    ASSERT_NE(record.children[0].process.word, 0u);
    for (const ChildRecord& each : record.children)
      ASSERT_EQ(each.process, record.children[0].process);
  }
}

TEST(InstanceMemory, ASignalToKeeperAndRouterIsOneRequest) {
  InstanceMemory memory;
  memory.AskToStop(0, 100);
  EXPECT_EQ(memory.stop_requests(), 0);
  memory.AskToStop(1, 200);  // the keeper's count
  memory.AskToStop(1, 300);  // the router's
  EXPECT_EQ(memory.stop_requests(), 1);
  EXPECT_EQ(memory.first_stop_us(), 200);
  memory.AskToStop(2, 400);
  memory.AskToStop(1, 500);
  EXPECT_EQ(memory.stop_requests(), 2);
  EXPECT_EQ(memory.first_stop_us(), 200);
}

}  // namespace
}  // namespace sysone
