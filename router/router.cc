// SPDX-License-Identifier: Apache-2.0
#include "router/router.h"

#include <unistd.h>

#include <optional>

#include "base/exit_codes.h"
#include "base/log.h"
#include "link/link_keys.h"
#include "router/child_process.h"
#include "router/find_model.h"
#include "router/instance_memory.h"
#include "router/keeper.h"
#include "router/listener.h"
#include "router/machine.h"
#include "router/signals.h"
#include "router/supervisor.h"
#include "shm_arena/arena.h"
#include "shm_arena/doorbell.h"
#include "shm_arena/router_watch.h"

namespace sysone {
namespace {

// The instance's folder, for as long as it has a keeper.
class RunDir {
 public:
  explicit RunDir(std::string path) : path_(std::move(path)) {}
  ~RunDir() { RemoveRunDir(path_); }
  RunDir(const RunDir&) = delete;
  RunDir& operator=(const RunDir&) = delete;

 private:
  const std::string path_;
};

// Processes of an instance of this name whose keeper and router were killed are ended first.
Result<Arena> MakeArena(const InstanceFacts& facts, SignalSource& signals) {
  SYSONE_ASSIGN_OR_RETURN(
      const ArenaConfig config,
      ArenaConfig::ForMegabytes(static_cast<uint32_t>(facts.options.shm_arena_mb)));
  auto created = Arena::Create(facts.instance, config);
  if (created.ok() || created.status().code() != Code::kUnavailable) return created;
  {
    auto left = Arena::Adopt(facts.instance);  // its name is removed at the end of this block
    if (left.ok()) {
      SYSONE_RETURN_IF_ERROR(EndEverybody(*left, signals));
    } else if (left.status().code() != Code::kNotFound) {  // else the last of them ended meanwhile
      return left;
    }
  }
  return Arena::Create(facts.instance, config);
}

// XDG_RUNTIME_DIR may name a folder that does not exist, is not ours or is too long for a socket's path (su, containers): then
// the folder lies under /tmp.
Result<std::string> PrepareRunDir(const ServeEnvironment& environment, const InstanceFacts& facts) {
  const GroupId last_group{static_cast<uint32_t>(facts.options.data_parallel_size - 1)};
  if (!environment.xdg_runtime_dir.empty() &&
      access(environment.xdg_runtime_dir.c_str(), W_OK) == 0) {
    const std::string run_dir =
        DefaultRunDir(environment.xdg_runtime_dir, getuid(), facts.instance);
    if (GroupSocketPath(run_dir, last_group).ok() && MakeRunDir(run_dir).ok()) return run_dir;
  }
  const std::string run_dir = DefaultRunDir("", getuid(), facts.instance);
  SYSONE_RETURN_IF_ERROR(GroupSocketPath(run_dir, last_group).status());
  // Another instance that ends may remove the common parent between the two steps of making it; once more is enough.
  if (MakeRunDir(run_dir).ok()) return run_dir;
  SYSONE_RETURN_IF_ERROR(MakeRunDir(run_dir));
  return run_dir;
}

// One `sysone serve` starts all the processes of a machine; several there would be as many instances.
Status CheckPlace(const LaunchPlace& place, int nodes) {
  if (place.world == 1 || (place.world == 0 && place.rank == 0)) return {};
  if (nodes > 1 && place.local_rank == 0) return {};
  return Error(Code::kInvalidArgument,
               "%s: start `sysone serve` once on a machine (mpirun -n 1, srun --ntasks=1); it "
               "starts its ranks "
               "by itself, as many as --tensor-parallel-size",
               LaunchPlaceText(place).c_str());
}

// The router's life, in its own process.
std::optional<int> Route(const InstanceFacts& facts, const Listener& listener, Arena& arena,
                         SignalSource& signals, InstanceMemory& memory, pid_t keeper) {
  InitLog("router", LogLevelOf(facts.options));
  arena.TakeOver();
  arena.RecoverDead();  // the router before may have taken the last line of the process table
  const Status registered = arena.Register(ProcessRole::kRouter, 0);
  if (!registered.ok()) {
    SYSONE_ERROR("%s", registered.message().c_str());
    return kExitFailure;
  }
  arena.WakeThrough(facts.run_dir);
  const std::optional<int> exit_status =
      Supervisor(facts, listener, arena, signals, memory, keeper).Run();
  if (!exit_status) {
    arena.Unregister();
    InitLog(kKeeperLogName, LogLevelOf(facts.options));
  }
  return exit_status;
}

// What would otherwise be found out by a child only.
Status CheckKeys(const ServeOptions& options) {
  if (options.curve_keys.empty() || (!options.headless && RemoteGroups(options) == 0)) return {};
  return ReadLinkKeys(options.curve_keys, options.headless ? LinkEnd::kHost : LinkEnd::kRouter)
      .status();
}

Result<Listener> BindLink(const ServeOptions& options) {
  const std::string& host = options.data_parallel_address;
  return Listener::Bind(host.empty() ? "0.0.0.0" : host, options.data_parallel_rpc_port,
                        {"--data-parallel-address", "--data-parallel-rpc-port"});
}

Result<int> ServeOrFail(InstanceFacts& facts, const ServeEnvironment& environment) {
  SYSONE_INFO("%s", LaunchPlaceText(environment.place).c_str());
  SYSONE_RETURN_IF_ERROR(CheckPlace(environment.place, facts.options.nnodes));
  SYSONE_ASSIGN_OR_RETURN(facts.rank_hosts, PlanRankHosts(facts.options));
  SYSONE_ASSIGN_OR_RETURN(const auto signals, SignalSource::Create());
  SYSONE_RETURN_IF_ERROR(FindDevice(facts));
  SYSONE_RETURN_IF_ERROR(FindModel(environment, *signals, facts));

  // With a fixed port the arena comes first: its name is known, and whoever an earlier router left behind holds the port.
  const ServeOptions& options = facts.options;
  std::optional<Listener> listener;
  if (options.headless) {
    listener.emplace(Listener::None(options.router_address));
  } else if (options.port == 0) {
    SYSONE_ASSIGN_OR_RETURN(Listener bound, Listener::Bind(options.host, 0));
    listener.emplace(std::move(bound));
  }
  facts.instance = options.instance_name;
  if (facts.instance.empty() && options.headless) facts.instance = "headless";
  if (facts.instance.empty())
    facts.instance = Format("port-%d", listener ? listener->port() : options.port);
  SYSONE_ASSIGN_OR_RETURN(Arena arena, MakeArena(facts, *signals));
  arena.SetIdentity({SysoneVersion(), facts.model_fingerprint});
  if (!listener) {
    SYSONE_ASSIGN_OR_RETURN(Listener bound, Listener::Bind(options.host, options.port));
    listener.emplace(std::move(bound));
  }

  SYSONE_RETURN_IF_ERROR(CheckKeys(options));
  std::optional<Listener> link;
  if (RemoteGroups(options) > 0) {
    SYSONE_ASSIGN_OR_RETURN(Listener bound, BindLink(options));
    link.emplace(std::move(bound));
    facts.link_fd = link->fd();
  }

  SYSONE_ASSIGN_OR_RETURN(facts.run_dir, PrepareRunDir(environment, facts));
  const RunDir run_dir(facts.run_dir);
  SYSONE_INFO("serving %s as instance '%s': %s", facts.model_path.c_str(), facts.instance.c_str(),
              PartsText(options).c_str());
  if (link) SYSONE_INFO("other hosts may join at port %d", link->port());
  InstanceMemory memory;
  Keeper keeper(arena, memory, *signals, static_cast<int64_t>(options.stuck_after_s * 1e6));
  return keeper.Run(
      [&](pid_t parent) { return Route(facts, *listener, arena, *signals, memory, parent); });
}

}  // namespace

ServeEnvironment ReadServeEnvironment(const std::function<std::string(const char*)>& variable) {
  const auto first = [&variable](std::initializer_list<const char*> names,
                                 const std::string& otherwise) {
    for (const char* name : names)
      if (std::string value = variable(name); !value.empty()) return value;
    return otherwise;
  };
  const std::string cache = first({"XDG_CACHE_HOME"}, variable("HOME") + "/.cache");
  ServeEnvironment environment;
  environment.caches.sysone_models = first({"SYSONE_CACHE"}, cache + "/sysone") + "/models";
  environment.caches.hub =
      first({"HF_HUB_CACHE"}, first({"HF_HOME"}, cache + "/huggingface") + "/hub");
  environment.tuning_dir = first({"SYSONE_CACHE"}, cache + "/sysone") + "/tuning";
  environment.xdg_runtime_dir = variable("XDG_RUNTIME_DIR");
  environment.fetch_script = SYSONE_SOURCE_DIR "/scripts/fetch_model";
  return environment;
}

int Serve(const ServeOptions& options, const std::vector<std::string>& args,
          const ServeEnvironment& environment) {
  InstanceFacts facts = FactsOf(options, args, environment);
  if (options.disable_cascade_attn)
    SYSONE_WARNING("--disable-cascade-attn is deprecated and does nothing");
  const auto exit_status = ServeOrFail(facts, environment);
  if (exit_status.ok()) return *exit_status;
  SYSONE_ERROR("%s", exit_status.status().message().c_str());
  return exit_status.status().code() == Code::kCancelled ? kExitFailure : kExitSetup;
}

}  // namespace sysone
