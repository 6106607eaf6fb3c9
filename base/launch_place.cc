// SPDX-License-Identifier: Apache-2.0
#include "base/launch_place.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/log.h"

namespace sysone {
namespace {

using Lookup = std::function<const char*(const char*)>;

std::string Text(const Lookup& variable, const char* name) {
  const char* const value = variable(name);
  return value == nullptr ? "" : value;
}

bool Has(const Lookup& variable, const char* name) { return !Text(variable, name).empty(); }

Result<int32_t> Number(const Lookup& variable, const char* name, int32_t least, int32_t most) {
  const std::string text = Text(variable, name);
  int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    return Error(Code::kInvalidArgument,
                 "the environment variable %s is '%s', not a whole number from %d to %d", name,
                 text.c_str(), least, most);
  return value;
}

// `out` stays when the variable is not set.
Status ReadIfSet(const Lookup& variable, const char* name, int32_t least, int32_t most,
                 int32_t& out) {
  if (!Has(variable, name)) return {};
  SYSONE_ASSIGN_OR_RETURN(out, Number(variable, name, least, most));
  return {};
}

// A rank and how many there are. Either both variables are set or, for `optional`, none.
Status ReadPair(const Lookup& variable, const char* rank_name, const char* size_name, bool optional,
                int32_t& rank, int32_t& size) {
  const bool has_rank = Has(variable, rank_name);
  const bool has_size = Has(variable, size_name);
  if (optional && !has_rank && !has_size) {
    rank = 0;
    size = 0;
    return {};
  }
  if (has_rank != has_size)
    return Error(Code::kInvalidArgument, "the environment variable %s is set, but %s is not",
                 has_rank ? rank_name : size_name, has_rank ? size_name : rank_name);
  SYSONE_ASSIGN_OR_RETURN(size, Number(variable, size_name, 1, INT32_MAX));
  SYSONE_ASSIGN_OR_RETURN(rank, Number(variable, rank_name, 0, INT32_MAX));
  if (rank >= size)
    return Error(Code::kInvalidArgument, "the environment variable %s is %d, but %s is %d",
                 rank_name, rank, size_name, size);
  return {};
}

// The number of tasks on machine `node` of a list in Slurm's notation: "2(x3),1".
std::optional<int32_t> TasksOnNode(std::string_view list, int32_t node) {
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(item.size() + 1, list.size()));
    int32_t tasks = 0;
    int32_t times = 1;
    const char* const end = item.data() + item.size();
    auto [at, error] = std::from_chars(item.data(), end, tasks);
    if (error != std::errc()) return std::nullopt;
    if (at != end) {
      if (!std::string_view(at, end).starts_with("(x")) return std::nullopt;
      const auto [behind, bad] = std::from_chars(at + 2, end, times);
      if (bad != std::errc() || std::string_view(behind, end) != ")") return std::nullopt;
    }
    if (node < times) return tasks;
    node -= times;
  }
  return std::nullopt;
}

Status ReadOpenMpi(const Lookup& variable, LaunchPlace& place) {
  SYSONE_RETURN_IF_ERROR(ReadPair(variable, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", false,
                                  place.rank, place.world));
  SYSONE_RETURN_IF_ERROR(ReadPair(variable, "OMPI_COMM_WORLD_LOCAL_RANK",
                                  "OMPI_COMM_WORLD_LOCAL_SIZE", true, place.local_rank,
                                  place.local_world));
  place.nodes = 0;
  SYSONE_RETURN_IF_ERROR(ReadIfSet(variable, "OMPI_MCA_orte_num_nodes", 1, INT32_MAX, place.nodes));
  return {};
}

Status ReadTorchrun(const Lookup& variable, LaunchPlace& place) {
  SYSONE_RETURN_IF_ERROR(ReadPair(variable, "RANK", "WORLD_SIZE", false, place.rank, place.world));
  SYSONE_RETURN_IF_ERROR(ReadPair(variable, "LOCAL_RANK", "LOCAL_WORLD_SIZE", true,
                                  place.local_rank, place.local_world));
  place.nodes = 0;
  SYSONE_RETURN_IF_ERROR(ReadIfSet(variable, "GROUP_WORLD_SIZE", 1, INT32_MAX, place.nodes));
  place.master_address = Text(variable, "MASTER_ADDR");
  SYSONE_RETURN_IF_ERROR(ReadIfSet(variable, "MASTER_PORT", 1, 65535, place.master_port));
  return {};
}

Status ReadSlurmTask(const Lookup& variable, LaunchPlace& place) {
  SYSONE_RETURN_IF_ERROR(
      ReadPair(variable, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", false, place.rank, place.world));
  place.nodes = 0;
  SYSONE_RETURN_IF_ERROR(ReadIfSet(variable, "SLURM_STEP_NUM_NODES", 1, INT32_MAX, place.nodes));
  SYSONE_RETURN_IF_ERROR(ReadIfSet(variable, "SLURM_LOCALID", 0, INT32_MAX, place.local_rank));
  place.local_world = 0;
  if (Has(variable, "SLURM_NODEID") && Has(variable, "SLURM_STEP_TASKS_PER_NODE")) {
    SYSONE_ASSIGN_OR_RETURN(const int32_t node, Number(variable, "SLURM_NODEID", 0, INT32_MAX));
    const std::string list = Text(variable, "SLURM_STEP_TASKS_PER_NODE");
    const auto tasks = TasksOnNode(list, node);
    if (!tasks)
      return Error(Code::kInvalidArgument,
                   "the environment variable SLURM_STEP_TASKS_PER_NODE is '%s', which says nothing "
                   "of machine %d (SLURM_NODEID)",
                   list.c_str(), node);
    place.local_world = *tasks;
    if (place.local_rank >= place.local_world)
      return Error(Code::kInvalidArgument,
                   "the environment variable SLURM_LOCALID is %d, but SLURM_STEP_TASKS_PER_NODE is "
                   "'%s'",
                   place.local_rank, list.c_str());
  }
  place.master_address = FirstHostOf(Text(variable, "SLURM_STEP_NODELIST"));
  return {};
}

Status ReadLeaderWorkerSet(const Lookup& variable, LaunchPlace& place) {
  // One pod a machine, as far as we can tell: each has a machine's view of its own.
  SYSONE_RETURN_IF_ERROR(
      ReadPair(variable, "LWS_WORKER_INDEX", "LWS_GROUP_SIZE", false, place.rank, place.world));
  place.nodes = place.world;
  place.master_address = Text(variable, "LWS_LEADER_ADDRESS");
  return {};
}

// PMIX_RANK is also set by mpirun and by `srun --mpi=pmix`; there it must say the same.
Status ReadPmix(const Lookup& variable, LaunchPlace& place) {
  if (!Has(variable, "PMIX_RANK")) return {};
  SYSONE_ASSIGN_OR_RETURN(const int32_t rank, Number(variable, "PMIX_RANK", 0, INT32_MAX));
  if (place.source == LaunchSource::kPmix) {
    place.rank = rank;
    place.world = place.local_world = place.nodes = 0;
  } else if (rank != place.rank) {
    return Error(
        Code::kInvalidArgument, "the environment variable PMIX_RANK is %d, but %s is %d", rank,
        place.source == LaunchSource::kSlurm ? "SLURM_PROCID" : "OMPI_COMM_WORLD_RANK", place.rank);
  }
  return {};
}

LaunchSource SourceOf(const Lookup& variable) {
  if (Has(variable, "OMPI_COMM_WORLD_RANK") || Has(variable, "OMPI_COMM_WORLD_SIZE"))
    return LaunchSource::kOpenMpi;
  // WORLD_SIZE alone may be anybody's.
  if (Has(variable, "RANK") && Has(variable, "WORLD_SIZE")) return LaunchSource::kTorchrun;
  if (Has(variable, "SLURM_STEP_ID")) return LaunchSource::kSlurm;
  if (Has(variable, "PMIX_RANK")) return LaunchSource::kPmix;
  if (Has(variable, "LWS_GROUP_SIZE") || Has(variable, "LWS_WORKER_INDEX"))
    return LaunchSource::kLeaderWorkerSet;
  return Has(variable, "SLURM_JOB_ID") ? LaunchSource::kSlurmJob : LaunchSource::kNone;
}

const char* SourceName(LaunchSource source) {
  switch (source) {
    case LaunchSource::kOpenMpi:
      return "mpirun";
    case LaunchSource::kTorchrun:
      return "torchrun";
    case LaunchSource::kSlurm:
      return "srun";
    case LaunchSource::kPmix:
      return "PMIx";
    case LaunchSource::kLeaderWorkerSet:
      return "LeaderWorkerSet";
    case LaunchSource::kSlurmJob:
      return "a Slurm job";
    case LaunchSource::kNone:
      return "nobody";
  }
  return "";
}

std::string OfText(int32_t count) { return count == 0 ? "" : Format(" of %d", count); }

}  // namespace

Result<LaunchPlace> ResolveLaunchPlace(const Lookup& variable) {
  LaunchPlace place;
  place.source = SourceOf(variable);
  switch (place.source) {
    case LaunchSource::kOpenMpi:
      SYSONE_RETURN_IF_ERROR(ReadOpenMpi(variable, place));
      SYSONE_RETURN_IF_ERROR(ReadPmix(variable, place));
      break;
    case LaunchSource::kTorchrun:
      SYSONE_RETURN_IF_ERROR(ReadTorchrun(variable, place));
      break;
    case LaunchSource::kSlurm:
      SYSONE_RETURN_IF_ERROR(ReadSlurmTask(variable, place));
      SYSONE_RETURN_IF_ERROR(ReadPmix(variable, place));
      break;
    case LaunchSource::kPmix:
      SYSONE_RETURN_IF_ERROR(ReadPmix(variable, place));
      break;
    case LaunchSource::kLeaderWorkerSet:
      SYSONE_RETURN_IF_ERROR(ReadLeaderWorkerSet(variable, place));
      break;
    case LaunchSource::kSlurmJob:
      SYSONE_RETURN_IF_ERROR(ReadIfSet(variable, "SLURM_JOB_NUM_NODES", 1, INT32_MAX, place.nodes));
      place.master_address = FirstHostOf(Text(variable, "SLURM_JOB_NODELIST"));
      break;
    case LaunchSource::kNone:
      break;
  }
  if (place.world != 0 && place.local_world > place.world)
    return Error(Code::kInvalidArgument,
                 "the environment says that %d processes of %s are on this machine, but that there "
                 "are %d in all",
                 place.local_world, SourceName(place.source), place.world);
  return place;
}

std::string LaunchPlaceText(const LaunchPlace& place) {
  if (place.source == LaunchSource::kNone) return "rank 0 of 1, started without a launcher";
  std::string inner;
  const auto add = [&inner](const std::string& text) {
    inner += (inner.empty() ? "" : ", ") + text;
  };
  if (place.local_world != 0)
    add(Format("local %d%s", place.local_rank, OfText(place.local_world).c_str()));
  if (place.nodes != 0) add(Format("%d machine%s", place.nodes, place.nodes == 1 ? "" : "s"));
  if (!place.master_address.empty()) add("first " + place.master_address);
  if (place.master_port != 0) add(Format("port %d", place.master_port));
  return Format("rank %d%s%s%s%s, told by %s", place.rank, OfText(place.world).c_str(),
                inner.empty() ? "" : " (", inner.c_str(), inner.empty() ? "" : ")",
                SourceName(place.source));
}

std::string FirstHostOf(const std::string& host_list) {
  std::string host;
  bool in_brackets = false;
  bool first_number = false;
  for (const char c : host_list) {
    if (c == '[') {
      in_brackets = first_number = true;
    } else if (c == ']') {
      in_brackets = false;
    } else if (in_brackets) {
      first_number = first_number && c != '-' && c != ',';
      if (first_number) host += c;
    } else if (c == ',') {
      break;
    } else {
      host += c;
    }
  }
  return in_brackets ? "" : host;
}

std::vector<std::string> WithoutLauncherVariables(std::vector<std::string> environment,
                                                  bool keep_slurm_job) {
  const auto starts = [](std::string_view text, std::initializer_list<std::string_view> prefixes) {
    return std::any_of(prefixes.begin(), prefixes.end(),
                       [&](std::string_view prefix) { return text.starts_with(prefix); });
  };
  const bool is_rank =
      std::any_of(environment.begin(), environment.end(),
                  [&](const std::string& line) { return starts(line, {"OMPI_COMM_WORLD_RANK="}); });
  std::erase_if(environment, [&](const std::string& line) {
    if (starts(line, {"OMPI_MCA_"})) return is_rank;
    if (starts(line, {"OMPI_", "PMIX_", "PMI_", "ORTE_", "SLURM_STEP", "SLURM_PMIX"})) return true;
    return !keep_slurm_job && starts(line, {"SLURM_"});
  });
  return environment;
}

}  // namespace sysone
