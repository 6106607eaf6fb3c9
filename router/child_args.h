// The command line of a child: the user's own arguments and, behind them, what only the router knows. Pure.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/serve_options.h"
#include "router/rank_hosts.h"
#include "shm_arena/process_table.h"

namespace sysone {

// What all children of an instance are told.
struct InstanceFacts {
  std::vector<std::string> user_args;  // as typed behind `sysone serve`
  ServeOptions options;                // the same, parsed
  std::string instance;
  std::string run_dir;
  std::string model_path;
  std::string model_fingerprint;
  std::string served_name;  // the model's own name, for when the user gave none
  std::string program_dir;
  std::string
      tuning_dir;  // what is known of models on devices (worker/tuning_cache.h); "": nothing is kept
  bool on_gpus = false;  // the worker is sysone-worker-cuda (router/device_choice.h)
  std::vector<std::string> environment;  // the router's own, "NAME=value"
  std::vector<RankHost> rank_hosts;      // of each group; empty: this machine alone
  int link_fd = -1;                      // listening socket at which other hosts join; -1: none do
  int cores = 1;  // to be divided among all ranks when --threads is not given
};

// Ranks of one group that run on this machine.
int LocalRanks(const InstanceFacts& facts);

// A child of the router by its role and its number among those of that role.
struct ChildPlace {
  ProcessRole role;
  uint32_t index;
};

// Everybody that `sysone serve` with these options starts; workers first, as they take longest.
std::vector<ChildPlace> ChildPlaces(const ServeOptions& options);

// The worker groups that a child serves or stands in for: [first, last).
struct GroupRange {
  uint32_t first = 0, last = 0;
};
GroupRange GroupsOf(const ServeOptions& options, ChildPlace child);

// Path of the executable that plays `role`, or mpirun, to be looked for in PATH, for a worker group of several ranks: it starts
// them, ends when they have ended, and ends them all when one of them dies.
std::string ChildProgram(const InstanceFacts& facts, ProcessRole role);

// An API server and a stand-in also get --listen-fd with the place of their inherited socket; before the arguments of a group stand mpirun's
// own and the program that it starts.
std::vector<std::string> ChildArgs(const InstanceFacts& facts, ProcessRole role, uint32_t index);

// The environment of that program; empty: the router's own. mpirun must not take the variables of a launcher that started
// `sysone serve` for its own.
std::vector<std::string> ChildEnvironment(const InstanceFacts& facts, ProcessRole role);

}  // namespace sysone
