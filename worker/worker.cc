// SPDX-License-Identifier: Apache-2.0
#include "worker/worker.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/clock.h"
#include "base/log.h"
#include "base/model_len.h"
#include "kernels/backend.h"
#include "model/model_files.h"
#include "shm_arena/arena.h"
#include "shm_arena/doorbell.h"
#include "shm_arena/group_bell.h"
#include "shm_arena/heartbeat.h"
#include "shm_arena/router_watch.h"
#include "worker/comm/mpi_group.h"
#include "worker/comm/roll_call.h"
#include "worker/decoder.h"
#include "worker/engine.h"
#include "worker/preload.h"
#include "worker/rank_group.h"
#include "worker/shard.h"

namespace sysone {
namespace {

constexpr int64_t kAttachWaitUs = 10'000'000;
// From a rank's start to that of the last one of its group. Programs that start together take a second at most; this is shorter
// than the router's patience with a silent worker, so that the message names the rank.
constexpr int64_t kJoinWaitUs = 30'000'000;

// Everything a pass needs; what comes first outlives the rest.
struct LoadedModel {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Collective> ranks;
  std::unique_ptr<Decoder> decoder;
  int32_t vocabulary = 0;
  int32_t max_model_len = 0;
  int32_t kv_blocks = 0;
  int64_t kv_block_bytes = 0;  // of all layers and ranks
  std::string fingerprint;     // of the model's files
};

// Memory of a block of keys and values: this rank's, and all ranks' together. And how many blocks the longest prompt takes.
struct KvBlocks {
  AttentionShape own_shape;  // of a layer
  int64_t own_bytes = 0;
  int64_t bytes = 0;
  int64_t least = 0;
};

// Before anything is loaded: --kv-cache-memory is enough for a prompt. The same on every rank.
Result<KvBlocks> CheckKvMemory(const ServeOptions& options, const ModelConfig& config,
                               const Collective& ranks, const LoadedModel& model) {
  KvBlocks blocks;
  const int64_t rows = KvCache::kBlockRows * static_cast<int64_t>(config.layers.size());
  for (int32_t rank = 0; rank < ranks.size(); ++rank) {
    SYSONE_ASSIGN_OR_RETURN(const Shard shard, PlanShard(config, rank, ranks.size()));
    const AttentionShape shape = ShardAttention(config, shard);
    const int64_t bytes = rows * model.backend->KvRowBytes(shape);
    blocks.bytes += bytes;
    if (rank == ranks.rank()) {
      blocks.own_shape = shape;
      blocks.own_bytes = bytes;
    }
  }
  // A prompt in two parts, prefix and branch, may begin a block of its own with each.
  blocks.least = KvCache::BlocksFor(model.max_model_len) + 1;
  const int64_t least = blocks.least * blocks.bytes;
  const int64_t asked = options.kv_cache_memory;
  if (asked != 0 && asked < least)
    return Error(
        Code::kInvalidArgument,
        "--kv-cache-memory %lld is too small: one prompt of --max-model-len %d tokens takes "
        "%lld bytes; give at least that, or a smaller --max-model-len",
        static_cast<long long>(asked), model.max_model_len, static_cast<long long>(least));
  return blocks;
}

// After everything else is loaded: as many blocks as --kv-cache-memory holds, or where the backend has memory of its own, as
// there is room for on every rank. The same on every rank.
Result<int32_t> PlanKvBlocks(const ServeOptions& options, const KvBlocks& blocks, Collective& ranks,
                             const Backend& backend) {
  const int64_t asked = options.kv_cache_memory;
  int64_t count = asked / blocks.bytes;
  if (const int64_t left = backend.KvMemoryLeft(blocks.own_shape); left > 0) {
    std::vector<uint64_t> room(static_cast<size_t>(ranks.size()));
    ranks.AllGather(static_cast<uint64_t>(left / blocks.own_bytes), room);
    const auto most = static_cast<int64_t>(*std::ranges::min_element(room));
    if (most < blocks.least)
      return Error(
          Code::kInvalidArgument,
          "keys and values of one prompt of --max-model-len take %lld MiB a rank, and there "
          "is room for %lld MiB beside the model; raise --gpu-memory-utilization, or lower "
          "--max-model-len or --max-num-batched-tokens, or use more ranks",
          static_cast<long long>(blocks.least * blocks.own_bytes >> 20),
          static_cast<long long>(most * blocks.own_bytes >> 20));
    count = asked != 0 ? std::min(count, most) : most;
  } else if (asked == 0) {
    count = std::max(kKvCacheMemoryDefault / blocks.bytes, blocks.least);
  }
  return static_cast<int32_t>(std::min<int64_t>(count, INT32_MAX / KvCache::kBlockRows));
}

// Two ranks may have been given different files of one name, or programs of different versions.
uint64_t FingerprintOf(const ModelWeights& weights) {
  const std::string text = weights.fingerprint + SysoneVersion();
  return BatchFingerprint(std::as_bytes(std::span(text)));
}

// A rank of a group, of which there may be no other.
struct Rank {
  const ServeOptions& options;
  const LaunchPlace& place;
  const Devices& devices;
  std::unique_ptr<Collective> ranks;  // LoadModel's from then on
};

// `arena`: rank 0's; null on the others, which are compared with rank 0.
Result<LoadedModel> LoadModel(Rank rank, const Arena* arena,
                              const std::function<void(double)>& progress) {
  const ServeOptions& options = rank.options;
  const int64_t begin_us = MonotonicUs();
  SYSONE_ASSIGN_OR_RETURN(const ModelWeights weights, OpenModelWeights(options.model_path));
  if (arena != nullptr)
    SYSONE_RETURN_IF_ERROR(arena->CheckIdentity({SysoneVersion(), weights.fingerprint}));
  CheckAgreement(*rank.ranks, FingerprintOf(weights), "the model's files or the program's version");
  LoadedModel model;
  model.fingerprint = weights.fingerprint;
  model.vocabulary = weights.config.vocab;
  SYSONE_ASSIGN_OR_RETURN(model.max_model_len,
                          EffectiveMaxModelLen(options, weights.config.max_positions));
  const LocalPlace local = LocalPlaceOf(options, rank.place);
  SYSONE_ASSIGN_OR_RETURN(model.backend, rank.devices.make_backend(options, local));
  SYSONE_INFO("%s model, %zu layers; %s", weights.config.family.c_str(),
              weights.config.layers.size(), model.backend->Describe().c_str());
  SYSONE_ASSIGN_OR_RETURN(model.ranks,
                          rank.devices.join(std::move(rank.ranks), options, local, *model.backend));
  Collective& ranks = *model.ranks;
  SYSONE_ASSIGN_OR_RETURN(const KvBlocks blocks,
                          CheckKvMemory(options, weights.config, ranks, model));
  const DecoderLimits limits{static_cast<int32_t>(options.max_num_batched_tokens),
                             options.max_num_seqs, model.max_model_len, kKvRowsLater};
  SYSONE_ASSIGN_OR_RETURN(model.decoder, Decoder::Load(*model.backend, weights.config,
                                                       weights.tensors, limits, progress, &ranks));
  model.kv_block_bytes = blocks.bytes;
  SYSONE_ASSIGN_OR_RETURN(model.kv_blocks, PlanKvBlocks(options, blocks, ranks, *model.backend));
  model.decoder->MakeKvStores(model.kv_blocks * KvCache::kBlockRows);
  SYSONE_RETURN_IF_ERROR(model.backend->MemoryStatus());
  // Also waits until everybody has loaded.
  CheckAgreement(ranks, static_cast<uint64_t>(model.kv_blocks), "the number of key-value blocks");
  SYSONE_INFO("weights loaded in %.1f s", static_cast<double>(MonotonicUs() - begin_us) * 1e-6);
  return model;
}

// The first pass after loading touches memory and starts threads; better before the first client than with it.
void WarmUp(PassModel& model, const DecoderLimits& limits) {
  const std::vector<TokenId> tokens(static_cast<size_t>(std::min(limits.max_rows, 64)), 0);
  const std::vector<TokenId> labels{0};
  const JobTokens job{{}, {{tokens, labels}}, false};
  const PassItem item{&job, 0, 1};
  Pass pass;
  pass.Build({&item, 1});
  std::vector<float> state(static_cast<size_t>(model.hidden()));
  float logit = 0;
  model.Run(pass, state, {&logit, 1}, {});
}

// All ranks. The line says what was done, "" for nothing.
std::string PreloadModel(LoadedModel& model, const ServeOptions& options) {
  PreloadOptions preload;
  preload.tuning_dir = options.tuning_dir;
  preload.subject = {{"model", model.fingerprint}};
  preload.tune = options.preload_autotune;
  preload.write = options.preload_only;
  preload.kv_rows = model.kv_blocks * KvCache::kBlockRows;
  return Preload(*model.backend, *model.decoder, *model.ranks, preload);
}

Result<std::unique_ptr<Collective>> JoinRanks(const ServeOptions& options,
                                              const LaunchPlace& place) {
  if (options.tensor_parallel_size == 1) return MakeSoloCollective();
  // A launcher that is killed takes its ranks with it.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  JoinOptions join;
  join.stuck_after_us = static_cast<int64_t>(options.stuck_after_s * 1e6);
  std::optional<RollCall> roll_call;
  // Ranks on other machines do not see this folder.
  if (place.source != LaunchSource::kNone && place.world == place.local_world)
    roll_call.emplace(options.run_dir, Format("group-%d.%d", options.role_index, getppid()),
                      place.rank, options.tensor_parallel_size, kJoinWaitUs);
  auto ranks = JoinMpiGroup(join);
  if (ranks->size() != options.tensor_parallel_size)
    return Error(Code::kInvalidArgument,
                 "--tensor-parallel-size is %d, but the launcher started %d ranks",
                 options.tensor_parallel_size, ranks->size());
  if (ranks->rank() == 0) SYSONE_INFO("%s", ranks->Describe().c_str());
  return ranks;
}

// Passes that were recorded hold on to the devices' collective, which is not to be left before they are gone.
Status Leave(LoadedModel& model) {
  model.decoder.reset();
  model.ranks->Finish();
  return {};
}

// A rank without an arena: ends with rank 0, or with its launcher.
Status RunFollower(Rank rank) {
  const ServeOptions& options = rank.options;
  SYSONE_ASSIGN_OR_RETURN(LoadedModel model, LoadModel(std::move(rank), nullptr, [](double) {}));
  PreloadModel(model, options);
  if (!options.preload_only) FollowLeader(*model.decoder, *model.ranks);
  return Leave(model);
}

// Rank 0 of `sysone preload`: without an arena.
Status RunPreload(Rank rank) {
  const ServeOptions& options = rank.options;
  int shown = 0;
  SYSONE_ASSIGN_OR_RETURN(LoadedModel model, LoadModel(std::move(rank), nullptr, [&](double share) {
                            const int tenths = static_cast<int>(share * 10);
                            if (tenths > shown)
                              SYSONE_INFO("%d %% of the weights loaded", 10 * tenths);
                            shown = std::max(shown, tenths);
                          }));
  const std::string done = PreloadModel(model, options);
  SYSONE_INFO("preloaded: %s", done.empty() ? "this device has nothing to choose" : done.c_str());
  return Leave(model);
}

// Rank 0, or a worker alone.
Status RunLeader(Rank rank) {
  const ServeOptions& options = rank.options;
  const GroupId group{static_cast<uint32_t>(options.role_index)};
  SYSONE_ASSIGN_OR_RETURN(Arena arena, Arena::Attach(options.instance_name, kAttachWaitUs));
  SYSONE_RETURN_IF_ERROR(arena.Register(ProcessRole::kWorker, Index(group)));
  arena.WakeThrough(options.run_dir);
  const RouterWatch watch(arena, options.instance_name, options.run_dir);
  Heartbeat heartbeat(arena);
  arena.lease().SetPhase(ProcessPhase::kLoading);
  SYSONE_ASSIGN_OR_RETURN(LoadedModel model, LoadModel(std::move(rank), &arena, [&](double share) {
                            arena.lease().SetProgress(static_cast<uint32_t>(share * 1000));
                          }));
  Collective& ranks = *model.ranks;
  if (const std::string done = PreloadModel(model, options); !done.empty())
    SYSONE_INFO("%s", done.c_str());
  RankLeader leader(*model.decoder, ranks);
  PassModel& pass_model = ranks.size() > 1 ? static_cast<PassModel&>(leader) : *model.decoder;
  WarmUp(pass_model, model.decoder->limits());
  std::unique_ptr<DoorbellListener> socket;
  if (options.doorbell == "zeromq") {
    SYSONE_ASSIGN_OR_RETURN(socket, DoorbellListener::Bind(options.run_dir, group));
  }
  const auto doorbell = MakeGroupListener(arena, group, std::move(socket));

  EngineOptions engine_options;
  engine_options.group = group;
  engine_options.vocabulary = model.vocabulary;
  engine_options.limits = {options.max_num_batched_tokens, options.max_num_batched_tokens / 2,
                           options.max_num_seqs};
  engine_options.kv_blocks = model.kv_blocks;
  engine_options.kv_block_bytes = static_cast<uint64_t>(model.kv_block_bytes);
  engine_options.prefix_caching = options.enable_prefix_caching;
  Engine engine(arena, *doorbell, pass_model, engine_options);
  arena.board().GroupReady(group, arena.self(), static_cast<uint32_t>(model.max_model_len));
  arena.lease().SetPhase(ProcessPhase::kReady);
  SYSONE_INFO(
      "ready: prompts of up to %d tokens, %lld tokens a pass, %lld MiB for %d keys and values",
      model.max_model_len, static_cast<long long>(options.max_num_batched_tokens),
      static_cast<long long>(model.kv_blocks * model.kv_block_bytes >> 20),
      model.kv_blocks * KvCache::kBlockRows);
  engine.Run(heartbeat.stop());
  if (ranks.size() > 1) leader.End();
  arena.lease().SetPhase(ProcessPhase::kExiting);
  return Leave(model);
}

}  // namespace

Status RunWorker(const ServeOptions& options, const LaunchPlace& place, const Devices& devices) {
  SYSONE_ASSIGN_OR_RETURN(std::unique_ptr<Collective> ranks, JoinRanks(options, place));
  const bool leads = ranks->rank() == 0;
  Rank rank{options, place, devices, std::move(ranks)};
  if (!leads) return RunFollower(std::move(rank));
  return options.preload_only ? RunPreload(std::move(rank)) : RunLeader(std::move(rank));
}

}  // namespace sysone
