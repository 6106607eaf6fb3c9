// Where this process stands among those that a launcher started together: mpirun, srun, torchrun or Kubernetes' LeaderWorkerSet
// each tell it by environment variables of their own. Read here alone, by the main of every program.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace sysone {

// Who told, the innermost launcher first: mpirun within a Slurm job is kOpenMpi.
enum class LaunchSource : uint8_t {
  kOpenMpi,          // OMPI_COMM_WORLD_*
  kTorchrun,         // RANK, WORLD_SIZE, …
  kSlurm,            // a task of srun: SLURM_PROCID, SLURM_STEP_*
  kPmix,             // PMIX_RANK alone
  kLeaderWorkerSet,  // LWS_*
  kSlurmJob,         // a batch script or a shell of a Slurm job, which is no task of many
  kNone,             // started by hand or by a service manager
};

struct LaunchPlace {
  LaunchSource source = LaunchSource::kNone;
  int32_t rank = 0;
  int32_t world = 1;        // 0: not told
  int32_t local_rank = 0;   // among those on this machine
  int32_t local_world = 1;  // 0: not told
  int32_t nodes = 1;        // machines that take part; 0: not told
  // Where rank 0 runs; "" and 0: not told.
  std::string master_address;
  int32_t master_port = 0;
};

// `variable` gives an environment variable's value, null or "" when it is not set. kInvalidArgument names the variable that holds
// no number, contradicts another or lacks its companion.
Result<LaunchPlace> ResolveLaunchPlace(const std::function<const char*(const char*)>& variable);

// "rank 1 of 4 (local 1 of 2, 2 machines, first node1), told by srun"
std::string LaunchPlaceText(const LaunchPlace& place);

// The first host of a list in Slurm's notation: "node07" of "node[07-09,12],login". "" for an empty list.
std::string FirstHostOf(const std::string& host_list);

// `environment` ("NAME=value" lines) for an mpirun of our own: without what an outer launcher told this process about its own
// ranks, which mpirun and the ranks would take for theirs. Settings of the user stay (OMPI_MCA_* when no mpirun started this process).
// `keep_slurm_job`: the job that is allocated stays known, so that mpirun can start ranks on its other machines.
std::vector<std::string> WithoutLauncherVariables(std::vector<std::string> environment,
                                                  bool keep_slurm_job);

}  // namespace sysone
