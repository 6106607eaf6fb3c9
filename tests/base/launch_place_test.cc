// The environments are those that OpenMPI 4.1.4 and Slurm 22.05 gave to a process, and what torchrun's and LeaderWorkerSet's
// documentation promises; variables that have nothing to do with ranks are left out.
// SPDX-License-Identifier: Apache-2.0
#include "base/launch_place.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

namespace sysone {
namespace {

using Lines = std::vector<std::string>;
using Environment = std::map<std::string, std::string>;

Environment Parse(const std::string& text) {
  Environment environment;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (const size_t equals = line.find('='); equals != std::string::npos)
      environment[line.substr(0, equals)] = line.substr(equals + 1);
  return environment;
}

Result<LaunchPlace> Resolve(const Environment& environment) {
  return ResolveLaunchPlace([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

// What the resolver says of `environment` with changes "NAME=value" ("NAME=": unset).
std::string ErrorOf(Environment environment, const Lines& changes) {
  for (const std::string& change : changes) {
    const size_t equals = change.find('=');
    environment[change.substr(0, equals)] = change.substr(equals + 1);
  }
  const auto place = Resolve(environment);
  return place.ok() ? "ok" : place.status().message();
}

// mpirun -n 2 on one machine, rank 1.
constexpr char kMpirun[] = R"(OMPI_COMM_WORLD_LOCAL_RANK=1
OMPI_COMM_WORLD_LOCAL_SIZE=2
OMPI_COMM_WORLD_NODE_RANK=1
OMPI_COMM_WORLD_RANK=1
OMPI_COMM_WORLD_SIZE=2
OMPI_MCA_ess=^singleton
OMPI_MCA_ess_base_jobid=2000158721
OMPI_MCA_orte_hnp_uri=2000158720.0;tcp://192.0.2.2:53893
OMPI_MCA_orte_num_nodes=1
OMPI_UNIVERSE_SIZE=2
PMIX_NAMESPACE=2000158721
PMIX_RANK=1
PMIX_SERVER_URI4=2000158720.0;tcp4://127.0.0.1:57399)";

// salloc -N2 -n2 mpirun, rank 1: Slurm's variables are those of the step in which mpirun's daemon runs on the second machine.
constexpr char kMpirunInSlurm[] = R"(OMPI_COMM_WORLD_LOCAL_RANK=0
OMPI_COMM_WORLD_LOCAL_SIZE=1
OMPI_COMM_WORLD_RANK=1
OMPI_COMM_WORLD_SIZE=2
OMPI_MCA_orte_num_nodes=2
PMIX_RANK=1
SLURM_JOB_ID=11
SLURM_JOB_NODELIST=n[1-2]
SLURM_JOB_NUM_NODES=2
SLURM_LOCALID=0
SLURM_NODEID=1
SLURM_PROCID=1
SLURM_STEP_ID=0
SLURM_STEP_NODELIST=n[1-2]
SLURM_STEP_NUM_NODES=2
SLURM_STEP_NUM_TASKS=2
SLURM_STEP_TASKS_PER_NODE=1(x2))";

// srun -N2 --ntasks-per-node=1 --mpi=pmix, task 1.
constexpr char kSrun[] = R"(PMIX_NAMESPACE=slurm.pmix.1.0
PMIX_RANK=1
SLURMD_NODENAME=n2
SLURM_JOB_ID=1
SLURM_JOB_NODELIST=n[1-2]
SLURM_JOB_NUM_NODES=2
SLURM_LOCALID=0
SLURM_NODEID=1
SLURM_NTASKS=2
SLURM_PROCID=1
SLURM_STEP_ID=0
SLURM_STEP_NODELIST=n[1-2]
SLURM_STEP_NUM_NODES=2
SLURM_STEP_NUM_TASKS=2
SLURM_STEP_TASKS_PER_NODE=1(x2)
SLURM_TASKS_PER_NODE=1(x2))";

// The script of sbatch -N2 --ntasks-per-node=2: a process number, but no step.
constexpr char kBatchScript[] = R"(SLURMD_NODENAME=n1
SLURM_JOB_ID=12
SLURM_JOB_NODELIST=n[1-2]
SLURM_JOB_NUM_NODES=2
SLURM_LOCALID=0
SLURM_NODEID=0
SLURM_NTASKS=4
SLURM_PROCID=0
SLURM_TASKS_PER_NODE=2(x2))";

// torchrun --nnodes 2 --nproc-per-node 2, the last of four.
constexpr char kTorchrun[] = R"(GROUP_RANK=1
GROUP_WORLD_SIZE=2
LOCAL_RANK=1
LOCAL_WORLD_SIZE=2
MASTER_ADDR=node0.example
MASTER_PORT=29500
RANK=3
ROLE_RANK=3
ROLE_WORLD_SIZE=4
TORCHELASTIC_RUN_ID=none
WORLD_SIZE=4)";

constexpr char kLeaderWorkerSet[] = R"(LWS_GROUP_SIZE=3
LWS_LEADER_ADDRESS=sysone-0.sysone.default
LWS_WORKER_INDEX=2)";

TEST(LaunchPlace, WithoutALauncherThereIsOneRank) {
  const auto place = Resolve(Parse("HOME=/home/user\nWORLD_SIZE=3\nPATH=/bin"));
  ASSERT_TRUE(place.ok()) << place.status().message();
  EXPECT_EQ(place->source, LaunchSource::kNone);
  EXPECT_EQ(place->rank, 0);
  EXPECT_EQ(place->world, 1);
  EXPECT_EQ(LaunchPlaceText(*place), "rank 0 of 1, started without a launcher");
}

TEST(LaunchPlace, EachLauncherIsUnderstood) {
  const std::pair<const char*, const char*> cases[] = {
      {kMpirun, "rank 1 of 2 (local 1 of 2, 1 machine), told by mpirun"},
      {kMpirunInSlurm, "rank 1 of 2 (local 0 of 1, 2 machines), told by mpirun"},
      {kSrun, "rank 1 of 2 (local 0 of 1, 2 machines, first n1), told by srun"},
      {kBatchScript, "rank 0 of 1 (local 0 of 1, 2 machines, first n1), told by a Slurm job"},
      {kTorchrun,
       "rank 3 of 4 (local 1 of 2, 2 machines, first node0.example, port 29500), told by torchrun"},
      {kLeaderWorkerSet,
       "rank 2 of 3 (local 0 of 1, 3 machines, first sysone-0.sysone.default), told by "
       "LeaderWorkerSet"},
      {"PMIX_RANK=4", "rank 4, told by PMIx"},
  };
  for (const auto& [text, expected] : cases) {
    const auto place = Resolve(Parse(text));
    ASSERT_TRUE(place.ok()) << place.status().message();
    EXPECT_EQ(LaunchPlaceText(*place), expected);
  }
}

TEST(LaunchPlace, TasksOfSrunAreCountedPerMachine) {
  Environment uneven = Parse(kSrun);
  uneven["SLURM_STEP_TASKS_PER_NODE"] = "2(x3),1,4";
  uneven["SLURM_STEP_NUM_TASKS"] = "11";
  for (const auto& [node, tasks] : std::map<std::string, int>{{"2", 2}, {"3", 1}, {"4", 4}}) {
    uneven["SLURM_NODEID"] = node;
    const auto place = Resolve(uneven);
    ASSERT_TRUE(place.ok()) << place.status().message();
    EXPECT_EQ(place->local_world, tasks);
  }
}

TEST(LaunchPlace, GarbageAndContradictionsNameTheVariable) {
  const Environment mpirun = Parse(kMpirun), srun = Parse(kSrun), torchrun = Parse(kTorchrun);
  const Environment leader_worker_set = Parse(kLeaderWorkerSet);
  EXPECT_EQ(ErrorOf(mpirun, {"OMPI_COMM_WORLD_RANK=1x"}),
            "the environment variable OMPI_COMM_WORLD_RANK is '1x', not a whole number from 0 to "
            "2147483647");
  EXPECT_EQ(ErrorOf(mpirun, {"OMPI_COMM_WORLD_SIZE=1"}),
            "the environment variable OMPI_COMM_WORLD_RANK is 1, but OMPI_COMM_WORLD_SIZE is 1");
  EXPECT_EQ(
      ErrorOf(mpirun, {"OMPI_COMM_WORLD_SIZE="}),
      "the environment variable OMPI_COMM_WORLD_RANK is set, but OMPI_COMM_WORLD_SIZE is not");
  EXPECT_EQ(ErrorOf(mpirun, {"PMIX_RANK=0"}),
            "the environment variable PMIX_RANK is 0, but OMPI_COMM_WORLD_RANK is 1");
  EXPECT_EQ(ErrorOf(mpirun, {"OMPI_COMM_WORLD_LOCAL_SIZE=3"}),
            "the environment says that 3 processes of mpirun are on this machine, but that there "
            "are 2 in all");
  EXPECT_EQ(ErrorOf(srun, {"PMIX_RANK=0"}),
            "the environment variable PMIX_RANK is 0, but SLURM_PROCID is 1");
  for (const char* bad : {"", "x", "1(x", "1(x1)", "1x2"})
    EXPECT_NE(ErrorOf(srun, {std::string("SLURM_STEP_TASKS_PER_NODE=") + bad})
                  .find(*bad == '\0' ? "ok" : "SLURM_STEP_TASKS_PER_NODE"),
              std::string::npos)
        << bad;
  EXPECT_EQ(ErrorOf(srun, {"SLURM_LOCALID=1"}),
            "the environment variable SLURM_LOCALID is 1, but SLURM_STEP_TASKS_PER_NODE is "
            "'1(x2)'");
  EXPECT_EQ(ErrorOf(srun, {"SLURM_PROCID="}),
            "the environment variable SLURM_STEP_NUM_TASKS is set, but SLURM_PROCID is not");
  EXPECT_NE(ErrorOf(torchrun, {"MASTER_PORT=70000"}).find("MASTER_PORT is '70000'"),
            std::string::npos);
  EXPECT_NE(ErrorOf(torchrun, {"LOCAL_WORLD_SIZE="}).find("LOCAL_RANK is set"), std::string::npos);
  EXPECT_NE(ErrorOf(leader_worker_set, {"LWS_WORKER_INDEX=3"}).find("LWS_GROUP_SIZE is 3"),
            std::string::npos);
  EXPECT_NE(ErrorOf(leader_worker_set, {"LWS_WORKER_INDEX=-1"}).find("'-1'"), std::string::npos);
}

TEST(FirstHostOf, ReadsSlurmsNotation) {
  EXPECT_EQ(FirstHostOf(""), "");
  EXPECT_EQ(FirstHostOf("n1"), "n1");
  EXPECT_EQ(FirstHostOf("n1,n2"), "n1");
  EXPECT_EQ(FirstHostOf("n[07-09,12],login"), "n07");
  EXPECT_EQ(FirstHostOf("login,n[07-09,12]"), "login");
  EXPECT_EQ(FirstHostOf("rack[3-4]node[1,5]-ib,x"), "rack3node1-ib");
  EXPECT_EQ(FirstHostOf("n["), "");
}

Lines LinesOf(const char* text) {
  Lines lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(WithoutLauncherVariables, LeavesNothingOfAnOuterMpirunOrSrun) {
  for (const char* outer : {kMpirun, kMpirunInSlurm, kSrun, kBatchScript}) {
    Lines lines = LinesOf(outer);
    lines.insert(lines.begin(), "PATH=/bin");
    lines.push_back("OPENMPI_HOME=/opt");
    Lines left = WithoutLauncherVariables(lines, false);
    std::erase_if(left, [](const std::string& line) { return line.starts_with("SLURMD_"); });
    EXPECT_EQ(left, (Lines{"PATH=/bin", "OPENMPI_HOME=/opt"}));
  }
}

TEST(WithoutLauncherVariables, KeepsTheUsersOwnSettings) {
  const Lines set = {"OMPI_MCA_btl_tcp_if_include=eth0", "PATH=/bin"};
  EXPECT_EQ(WithoutLauncherVariables(set, false), set);
}

TEST(WithoutLauncherVariables, CanKeepTheJobButNeverTheStep) {
  const Lines left = WithoutLauncherVariables(LinesOf(kSrun), true);
  EXPECT_NE(std::find(left.begin(), left.end(), "SLURM_JOB_NODELIST=n[1-2]"), left.end());
  for (const std::string& line : left) EXPECT_FALSE(line.starts_with("SLURM_STEP")) << line;
}

}  // namespace
}  // namespace sysone
