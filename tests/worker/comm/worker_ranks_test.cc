// The worker program started by mpirun in the wrong way: one clear line, and nobody waits for ever.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/exit_codes.h"
#include "base/log.h"
#include "base/serve_options.h"
#include "model/model_files.h"
#include "tests/model/temp_folder.h"
#include "tests/shm_arena/test_arena.h"
#include "tests/worker/comm/mpirun.h"

namespace sysone {
namespace {

// One rank of two, for mpirun.
std::string Worker(const std::string& instance, const std::string& run_dir,
                   const std::string& model) {
  return Format("-np 1 " SYSONE_WORKER
                " -tp 2 --threads 1 --role-index 0 --instance-name %s --run-dir %s"
                " --model-path " SYSONE_SOURCE_DIR "/tests/golden/%s",
                instance.c_str(), run_dir.c_str(), model.c_str());
}

TEST(WorkerRanks, OfAnotherNumberThanTheFlagSaysAreRefused) {
  const TempFolder folder;
  const RanksRun run = Mpirun(Worker("none", folder.path(), "qwen3"));
  EXPECT_EQ(run.exit_status, kExitSetup) << run.output;
  EXPECT_NE(run.output.find("--tensor-parallel-size is 2, but the launcher started 1"),
            std::string::npos)
      << run.output;
}

TEST(WorkerRanks, WithDifferentModelsEndBeforeTheyServe) {
  const TempFolder folder;
  const std::string instance = Format("worker-ranks-%d", getpid());
  auto arena = Arena::Create(instance, SmallConfig());
  ASSERT_TRUE(arena.ok()) << arena.status().message();
  const auto weights = OpenModelWeights(SYSONE_SOURCE_DIR "/tests/golden/qwen3");
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  arena->SetIdentity({SysoneVersion(), weights->fingerprint});
  const RanksRun run = Mpirun(Worker(instance, folder.path(), "qwen3") + " : " +
                              Worker(instance, folder.path(), "llama"));
  EXPECT_NE(run.exit_status, 0);
  EXPECT_NE(run.output.find("rank 1 and rank 0 differ in the model's files"), std::string::npos)
      << run.output;
}

}  // namespace
}  // namespace sysone
