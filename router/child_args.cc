// SPDX-License-Identifier: Apache-2.0
#include "router/child_args.h"

#include <algorithm>

#include "base/launch_place.h"
#include "router/child_process.h"
#include "router/device_choice.h"

namespace sysone {

namespace {

std::string OwnProgram(const InstanceFacts& facts, ProcessRole role) {
  const auto name = [&] {
    switch (role) {
      case ProcessRole::kWorker:
        return facts.on_gpus ? kCudaWorker : "/sysone-worker";
      case ProcessRole::kStandIn:
        return "/sysone-stand-in";
      case ProcessRole::kIntake:
        return "/sysone-intake";
      default:
        return "/sysone-api-server";
    }
  };
  return facts.program_dir + name();
}

bool IsGroup(const InstanceFacts& facts, ProcessRole role) {
  return role == ProcessRole::kWorker && facts.options.tensor_parallel_size > 1;
}

using Args = std::vector<std::string>;

void Append(Args& args, const Args& more) { args.insert(args.end(), more.begin(), more.end()); }

// This machine alone, also within the allocation of a cluster: shared memory between the ranks, the loopback device to mpirun.
Args HereOnly(const InstanceFacts& facts, const std::string& ranks) {
  return {
      "--host", "localhost:" + ranks, "--mca", "plm", "isolated", "--mca", "ras",
      "^slurm,gridengine,tm,lsf,alps", "--mca", "btl", "self,vader", "--mca", "oob_tcp_if_include",
      "lo",
      // What the ranks share with mpirun goes with the instance, even if all of them are killed.
      "--mca", "orte_tmpdir_base", facts.run_dir, "--mca", "btl_vader_backing_directory",
      facts.run_dir};
}

// Several machines, which mpirun reaches through ssh or, within a Slurm job, through srun. Shared memory of MPI's would outlive
// a rank there that is killed, so the ranks talk over TCP. Ranks fill a machine before the next one is begun.
Args OverHosts(const InstanceFacts& facts) {
  std::string list;
  for (const RankHost& host : facts.rank_hosts)
    list += (list.empty() ? "" : ",") + host.name + ":" + std::to_string(host.ranks);
  Args args{
      "--host", list, "--map-by", "slot:OVERSUBSCRIBE", "--mca", "btl", "self,tcp",
      // A machine that is cut off without a word is given up, and its ranks give up this one, within seconds: nothing else
      // passes between mpirun and its daemons while the ranks work.
      "--mca", "oob_tcp_keepalive_time", "5", "--mca", "oob_tcp_keepalive_intvl", "2", "--mca",
      "oob_tcp_keepalive_probes", "3"};
  // Which network NCCL takes is the same for all ranks, wherever they are. Which devices are visible is each machine's own affair.
  for (const std::string& line : facts.environment)
    if (line.starts_with("NCCL_")) Append(args, {"-x", line.substr(0, line.find('='))});
  return args;
}

Args MpirunArgs(const InstanceFacts& facts) {
  const std::string ranks = std::to_string(facts.options.tensor_parallel_size);
  Args args = facts.rank_hosts.empty() ? HereOnly(facts, ranks) : OverHosts(facts);
  Append(args,
         {"-np", ranks,
          // Containers run as root, and have fewer cores than ranks or none to be bound to.
          "--allow-run-as-root", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "--mca",
          "pml", "ob1",
          // When a rank dies, the others are of no use: killed at once.
          "--mca", "odls_base_sigkill_timeout", "0", OwnProgram(facts, ProcessRole::kWorker)});
  return args;
}

}  // namespace

int LocalRanks(const InstanceFacts& facts) {
  return facts.rank_hosts.empty() ? facts.options.tensor_parallel_size : facts.rank_hosts[0].ranks;
}

std::vector<ChildPlace> ChildPlaces(const ServeOptions& options) {
  std::vector<ChildPlace> places;
  const auto add = [&places](ProcessRole role, int count) {
    for (int i = 0; i < count; ++i) places.push_back({role, static_cast<uint32_t>(i)});
  };
  add(ProcessRole::kWorker, LocalGroups(options));
  if (RemoteGroups(options) > 0) add(ProcessRole::kStandIn, 1);
  if (options.headless)
    add(ProcessRole::kIntake, LocalGroups(options));
  else
    add(ProcessRole::kApiServer, options.api_server_count);
  return places;
}

GroupRange GroupsOf(const ServeOptions& options, ChildPlace child) {
  if (child.role == ProcessRole::kWorker) return {child.index, child.index + 1};
  if (child.role != ProcessRole::kStandIn) return {};
  return {static_cast<uint32_t>(LocalGroups(options)),
          static_cast<uint32_t>(options.data_parallel_size)};
}

std::string ChildProgram(const InstanceFacts& facts, ProcessRole role) {
  return IsGroup(facts, role) ? "mpirun" : OwnProgram(facts, role);
}

Args ChildArgs(const InstanceFacts& facts, ProcessRole role, uint32_t index) {
  Args args;
  if (IsGroup(facts, role)) args = MpirunArgs(facts);
  Append(args, facts.user_args);
  // Of a flag given twice the last one counts, so these win over the user's. "=" keeps a value that looks like a flag one.
  const auto add = [&args](const char* flag, const std::string& value) {
    args.push_back(flag + ("=" + value));
  };
  add("--model-path", facts.model_path);
  add("--instance-name", facts.instance);
  add("--run-dir", facts.run_dir);
  add("--role-index", std::to_string(index));
  if (facts.options.served_model_names.empty()) add("--served-model-name", facts.served_name);
  if (role == ProcessRole::kApiServer || role == ProcessRole::kStandIn)
    add("--listen-fd", std::to_string(kInheritedFd));
  if (role == ProcessRole::kWorker && !facts.tuning_dir.empty())
    add("--tuning-dir", facts.tuning_dir);
  if (role == ProcessRole::kWorker && facts.options.threads == 0)
    add("--threads", std::to_string(std::max(
                         1, facts.cores / (LocalGroups(facts.options) * LocalRanks(facts)))));
  return args;
}

Args ChildEnvironment(const InstanceFacts& facts, ProcessRole role) {
  if (!IsGroup(facts, role)) return {};
  return WithoutLauncherVariables(facts.environment, /*keep_slurm_job=*/!facts.rank_hosts.empty());
}

}  // namespace sysone
