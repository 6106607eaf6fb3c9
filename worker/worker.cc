// SPDX-License-Identifier: Apache-2.0
#include "worker/worker.h"

#include <algorithm>

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
#include "worker/decoder.h"
#include "worker/engine.h"

namespace sysone {
namespace {

constexpr int64_t kAttachWaitUs = 10'000'000;

// Everything a pass needs, and the backend that must outlive it.
struct LoadedModel {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Decoder> decoder;
  int32_t vocabulary = 0;
  int32_t max_model_len = 0;
  int32_t kv_blocks = 0;
  int64_t kv_block_bytes = 0;  // of all layers
};

// Fills kv_blocks and kv_block_bytes: as many blocks as --kv-cache-memory holds.
Status PlanKvMemory(const ServeOptions& options, const ModelConfig& config, LoadedModel& model) {
  const AttentionShape shape{config.heads, config.kv_heads, config.head_dim, 0};
  model.kv_block_bytes = KvCache::kBlockRows * model.backend->KvRowBytes(shape) *
                         static_cast<int64_t>(config.layers.size());
  // A prompt in two parts, prefix and branch, may begin a block of its own with each.
  const int64_t least_blocks = KvCache::BlocksFor(model.max_model_len) + 1;
  const int64_t least = least_blocks * model.kv_block_bytes;
  const int64_t asked = options.kv_cache_memory;
  if (asked != 0 && asked < least)
    return Error(
        Code::kInvalidArgument,
        "--kv-cache-memory %lld is too small: one prompt of --max-model-len %d tokens takes "
        "%lld bytes; give at least that, or a smaller --max-model-len",
        static_cast<long long>(asked), model.max_model_len, static_cast<long long>(least));
  const int64_t bytes = asked != 0 ? asked : std::max(kKvCacheMemoryDefault, least);
  model.kv_blocks = static_cast<int32_t>(
      std::min<int64_t>(bytes / model.kv_block_bytes, INT32_MAX / KvCache::kBlockRows));
  return {};
}

Result<LoadedModel> LoadModel(const ServeOptions& options, ProcessLease& lease) {
  const int64_t begin_us = MonotonicUs();
  SYSONE_ASSIGN_OR_RETURN(const ModelWeights weights, OpenModelWeights(options.model_path));
  LoadedModel model;
  model.vocabulary = weights.config.vocab;
  SYSONE_ASSIGN_OR_RETURN(model.max_model_len,
                          EffectiveMaxModelLen(options, weights.config.max_positions));
  BackendOptions backend_options;
  backend_options.dtype = options.dtype;
  backend_options.threads = options.threads;
  SYSONE_ASSIGN_OR_RETURN(model.backend, MakeBackend(backend_options));
  SYSONE_INFO("%s model, %zu layers; %s", weights.config.family.c_str(),
              weights.config.layers.size(), model.backend->Describe().c_str());
  SYSONE_RETURN_IF_ERROR(PlanKvMemory(options, weights.config, model));
  const DecoderLimits limits{static_cast<int32_t>(options.max_num_batched_tokens),
                             options.max_num_seqs, model.max_model_len,
                             model.kv_blocks * KvCache::kBlockRows};
  SYSONE_ASSIGN_OR_RETURN(
      model.decoder,
      Decoder::Load(*model.backend, weights.config, weights.tensors, limits,
                    [&](double share) { lease.SetProgress(static_cast<uint32_t>(share * 1000)); }));
  SYSONE_INFO("weights loaded in %.1f s", static_cast<double>(MonotonicUs() - begin_us) * 1e-6);
  return model;
}

// The first pass after loading touches memory and starts threads; better before the first client than with it.
void WarmUp(Decoder& decoder) {
  const std::vector<TokenId> tokens(static_cast<size_t>(std::min(decoder.limits().max_rows, 64)),
                                    0);
  const std::vector<TokenId> labels{0};
  const JobTokens job{{}, {{tokens, labels}}, false};
  const PassItem item{&job, 0, 1};
  Pass pass;
  pass.Build({&item, 1});
  float logit = 0;
  decoder.Forward(pass, {&logit, 1}, {});
}

}  // namespace

Status RunWorker(const ServeOptions& options) {
  const GroupId group{static_cast<uint32_t>(options.role_index)};
  SYSONE_ASSIGN_OR_RETURN(Arena arena, Arena::Attach(options.instance_name, kAttachWaitUs));
  SYSONE_RETURN_IF_ERROR(arena.Register(ProcessRole::kWorker, Index(group)));
  arena.WakeThrough(options.run_dir);
  const RouterWatch watch(arena, options.instance_name, options.run_dir);
  Heartbeat heartbeat(arena);
  arena.lease().SetPhase(ProcessPhase::kLoading);
  SYSONE_ASSIGN_OR_RETURN(LoadedModel model, LoadModel(options, arena.lease()));
  WarmUp(*model.decoder);
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
  Engine engine(arena, *doorbell, *model.decoder, engine_options);
  arena.board().GroupReady(group, arena.self(), static_cast<uint32_t>(model.max_model_len));
  arena.lease().SetPhase(ProcessPhase::kReady);
  SYSONE_INFO(
      "ready: prompts of up to %d tokens, %lld tokens a pass, %lld MiB for %d keys and values",
      model.max_model_len, static_cast<long long>(options.max_num_batched_tokens),
      static_cast<long long>(model.kv_blocks * model.kv_block_bytes >> 20),
      model.kv_blocks * KvCache::kBlockRows);
  engine.Run(heartbeat.stop());
  arena.lease().SetPhase(ProcessPhase::kExiting);
  return {};
}

}  // namespace sysone
