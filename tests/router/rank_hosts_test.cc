// SPDX-License-Identifier: Apache-2.0
#include "router/rank_hosts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "router/child_args.h"
#include "tests/model/temp_folder.h"

namespace sysone {
namespace {

std::string Text(const Result<std::vector<RankHost>>& hosts) {
  if (!hosts.ok()) return hosts.status().message();
  std::string text;
  for (const RankHost& host : *hosts) text += host.name + "*" + std::to_string(host.ranks) + " ";
  return text;
}

ServeOptions Options(int ranks, const std::string& list) {
  ServeOptions options;
  options.tensor_parallel_size = ranks;
  options.mpi_hosts = list;
  return options;
}

TEST(RankHosts, AreReadFromAListAndFromOpenMpisHostFile) {
  EXPECT_EQ(Text(ParseHostList("a:2,b")), "a*2 b*1 ");
  EXPECT_EQ(Text(ParseHostList("a,b:3,a")), "a*2 b*3 ");
  EXPECT_EQ(Text(ParseHostFile("# ours\n\na slots=2 max_slots=4 # two\n  b\nc slots=1")),
            "a*2 b*1 c*1 ");
}

TEST(RankHosts, ANumberThatIsNoneIsNamed) {
  for (const char* bad : {"a:0", "a:x", "a:", ":2", "a:2x", "a,,b"})
    EXPECT_NE(Text(ParseHostList(bad)).find("is no host and a number"), std::string::npos) << bad;
  EXPECT_EQ(Text(ParseHostFile("a slots=two")),
            "'a' with 'two' ranks is no host and a number from 1 to 4096");
}

TEST(RankHosts, ThereAreAsManyAsRanksAndTheFirstIsThisMachine) {
  char name[256] = {};
  ASSERT_EQ(gethostname(name, sizeof name - 1), 0);
  const std::string here = name;
  EXPECT_EQ(Text(PlanRankHosts(Options(3, "localhost:2,other:2,third"))), "localhost*2 other*1 ");
  EXPECT_EQ(Text(PlanRankHosts(Options(1, "127.0.0.1"))), "127.0.0.1*1 ");
  EXPECT_EQ(Text(PlanRankHosts(Options(2, here + ",other"))), here + "*1 other*1 ");
  EXPECT_EQ(Text(PlanRankHosts(Options(4, "localhost:2,other"))),
            "the hosts have room for 3 ranks (slots=), but --tensor-parallel-size is 4");
  EXPECT_NE(Text(PlanRankHosts(Options(2, "other.invalid,localhost")))
                .find("'other.invalid', is not this"),
            std::string::npos);
  EXPECT_EQ(Text(PlanRankHosts(Options(2, ""))), "");
}

TEST(RankHosts, AFileIsReadAndAMissingOneIsNamed) {
  const TempFolder folder;
  ServeOptions options = Options(2, "");
  options.mpi_hostfile = folder.path() + "/hosts";
  EXPECT_NE(Text(PlanRankHosts(options)).find("cannot read '" + options.mpi_hostfile),
            std::string::npos);
  folder.Write("hosts", "localhost slots=1\nother slots=1\n");
  EXPECT_EQ(Text(PlanRankHosts(options)), "localhost*1 other*1 ");
}

TEST(ChildArgs, AGroupOverHostsTellsMpirunItsHostsAndKeepsTheSlurmJob) {
  InstanceFacts facts;
  facts.options = Options(3, "here:1,there:2");
  facts.rank_hosts = *ParseHostList("here:1,there:2");
  facts.environment = {"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "PMIX_RANK=0"};
  facts.cores = 8;
  EXPECT_EQ(LocalRanks(facts), 1);
  const auto args = ChildArgs(facts, ProcessRole::kWorker, 0);
  EXPECT_EQ(std::vector<std::string>(args.begin(), args.begin() + 2),
            (std::vector<std::string>{"--host", "here:1,there:2"}));
  for (const std::string& arg : args) EXPECT_NE(arg, "isolated");
  EXPECT_EQ(args.back(), "--threads=8") << "one of the ranks is on this machine";
  EXPECT_EQ(ChildEnvironment(facts, ProcessRole::kWorker),
            std::vector<std::string>{"SLURM_JOB_ID=7"});
}

TEST(ChildArgs, AGroupOverHostsGetsTheVariablesOfNcclEverywhereAndThoseOfDevicesNot) {
  InstanceFacts facts;
  facts.options = Options(3, "here:1,there:2");
  facts.rank_hosts = *ParseHostList("here:1,there:2");
  facts.environment = {"NCCL_DEBUG=INFO", "CUDA_VISIBLE_DEVICES=1", "HOME=/x"};
  const auto args = ChildArgs(facts, ProcessRole::kWorker, 0);
  const auto passed_on = std::find(args.begin(), args.end(), "-x");
  ASSERT_NE(passed_on, args.end());
  EXPECT_EQ(passed_on[1], "NCCL_DEBUG");
  EXPECT_EQ(std::count(args.begin(), args.end(), "-x"), 1);
}

}  // namespace
}  // namespace sysone
