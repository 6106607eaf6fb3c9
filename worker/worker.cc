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
};

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
  const DecoderLimits limits{static_cast<int32_t>(options.max_num_batched_tokens),
                             options.max_num_seqs, model.max_model_len};
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
  const RouterWatch watch(arena, options.instance_name, options.run_dir);
  Heartbeat heartbeat(arena);
  arena.lease().SetPhase(ProcessPhase::kLoading);
  SYSONE_ASSIGN_OR_RETURN(LoadedModel model, LoadModel(options, arena.lease()));
  WarmUp(*model.decoder);
  SYSONE_ASSIGN_OR_RETURN(const std::unique_ptr<DoorbellListener> doorbell,
                          DoorbellListener::Bind(options.run_dir, group));

  const EngineOptions engine_options{
      group, model.vocabulary, {options.max_num_batched_tokens, options.max_num_seqs}};
  Engine engine(
      arena, *doorbell,
      [&](const Pass& pass, std::span<float> logits, std::span<HeadSummary> summaries) {
        model.decoder->Forward(pass, logits, summaries);
      },
      engine_options);
  arena.board().GroupReady(group, arena.self(), static_cast<uint32_t>(model.max_model_len));
  arena.lease().SetPhase(ProcessPhase::kReady);
  SYSONE_INFO("ready: prompts of up to %d tokens, %lld tokens a pass", model.max_model_len,
              static_cast<long long>(options.max_num_batched_tokens));
  engine.Run(heartbeat.stop());
  arena.lease().SetPhase(ProcessPhase::kExiting);
  return {};
}

}  // namespace sysone
