// SPDX-License-Identifier: Apache-2.0
#include "worker/preload.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/clock.h"
#include "base/log.h"
#include "base/serve_options.h"
#include "worker/pass.h"
#include "worker/rank_group.h"

namespace sysone {
namespace {

// A question has a few tokens of its own at least.
constexpr int32_t kRowsOfARead = 4;

// Prompts of the token 0, as long as may be; the last rows are read.
void Build(PassCount count, int32_t max_positions, Pass& pass) {
  static constexpr TokenId kLabel = 0;
  const std::vector<TokenId> tokens(static_cast<size_t>(count.rows), 0);
  std::vector<int32_t> kv_rows(tokens.size());
  std::iota(kv_rows.begin(), kv_rows.end(), 0);
  pass.Clear();
  for (int32_t first = 0; first < count.rows; first += max_positions) {
    const KvSpan own{first, std::min(max_positions, count.rows - first)};
    const auto at = static_cast<size_t>(first), length = static_cast<size_t>(own.count);
    pass.AddRun(std::span(tokens).subspan(at, length), 0, std::span(kv_rows).subspan(at, length),
                {&own, 1});
  }
  for (int32_t read = 0; read < count.reads; ++read)
    pass.AddRead(count.rows - 1 - read, {{}, {&kLabel, 1}}, false);
  pass.Finish();
}

// Rank 0 runs them with all the others.
void RunAll(Decoder& decoder, Collective& ranks, std::span<const PassCount> counts) {
  if (ranks.rank() != 0) return FollowLeader(decoder, ranks);
  RankLeader leader(decoder, ranks);
  PassModel& model = ranks.size() > 1 ? static_cast<PassModel&>(leader) : decoder;
  Pass pass;
  std::vector<float> states, logits;
  for (const PassCount& count : counts) {
    Build(count, decoder.limits().max_positions, pass);
    states.resize(static_cast<size_t>(count.reads) * static_cast<size_t>(model.hidden()));
    logits.resize(static_cast<size_t>(count.reads));
    model.Run(pass, states, logits, {});
  }
  if (ranks.size() > 1) leader.End();
}

// Rank 0's choices become everybody's. A rank to which they mean nothing keeps its own.
void Share(Backend& backend, Collective& ranks) {
  if (ranks.size() == 1) return;
  std::vector<std::byte> bytes;
  if (ranks.rank() == 0) bytes = backend.ExportChoices();
  ranks.Broadcast(bytes);
  if (ranks.rank() == 0) return;
  const Status taken = backend.ImportChoices(bytes);
  if (!taken.ok()) SYSONE_WARNING("this rank keeps its own choices: %s", taken.message().c_str());
}

// What rank 0 finds of an earlier start; nothing where there is no file or one of no use.
std::optional<std::vector<std::byte>> Load(Backend& backend, const TuningCache& cache) {
  auto found = cache.Read();
  Status status = found.status();
  if (status.ok()) status = backend.ImportChoices(*found).WithContext(cache.path());
  if (status.ok()) {
    SYSONE_INFO("choices of products taken from %s", cache.path().c_str());
    return *std::move(found);
  }
  if (status.code() != Code::kNotFound)
    SYSONE_WARNING("tuning cache ignored: %s", status.message().c_str());
  return std::nullopt;
}

TuningCache CacheOf(const ChoiceOrigin& origin, const Collective& ranks,
                    const PreloadOptions& options) {
  TuningFacts subject = options.subject, versions = origin.versions;
  subject.emplace_back("device", origin.subject);
  subject.emplace_back("ranks", std::to_string(ranks.size()));
  versions.emplace_back("sysone", SysoneVersion());
  return TuningCache(options.tuning_dir, subject, versions);
}

}  // namespace

std::vector<PassCount> UsualPasses(const Backend& backend, const DecoderLimits& limits,
                                   int32_t kv_rows) {
  std::vector<PassCount> counts;
  if (backend.OriginOfChoices().subject.empty()) return counts;
  const int32_t most_rows = std::min(limits.max_rows, kv_rows);
  for (int32_t rows = backend.PassRows(1); rows <= most_rows; rows = backend.PassRows(rows + 1)) {
    const int32_t most_reads = std::min(limits.max_reads, std::max(1, rows / kRowsOfARead));
    for (int32_t reads = backend.PassReads(1); reads <= most_reads;
         reads = backend.PassReads(reads + 1))
      counts.push_back({rows, reads});
    // Above its largest size a backend keeps nothing: every count is its own.
    if (backend.PassRows(rows + 1) == rows + 1) break;
  }
  return counts;
}

std::string Preload(Backend& backend, Decoder& decoder, Collective& ranks,
                    const PreloadOptions& options) {
  const ChoiceOrigin origin = backend.OriginOfChoices();
  if (origin.subject.empty()) return "";
  const int64_t begin_us = MonotonicUs();
  const bool has_file = ranks.rank() == 0 && !options.tuning_dir.empty();
  const TuningCache cache = CacheOf(origin, ranks, options);
  std::optional<std::vector<std::byte>> loaded;
  if (has_file) loaded = Load(backend, cache);
  std::vector<uint64_t> known(static_cast<size_t>(ranks.size()));
  ranks.AllGather(loaded.has_value(), known);

  const auto counts = UsualPasses(backend, decoder.limits(), options.kv_rows);
  // Without choices to share yet, a first round makes some.
  if (options.tune || (ranks.size() > 1 && known[0] == 0)) {
    backend.SetTuning(options.tune);
    RunAll(decoder, ranks, counts);
    backend.SetTuning(false);
  }
  Share(backend, ranks);
  // A rank with new choices records anew, and so all must.
  if (ranks.size() > 1) decoder.RecordAnew();
  RunAll(decoder, ranks, counts);

  if (has_file && (options.write || options.tune)) {
    const auto bytes = backend.ExportChoices();
    const Status written = loaded == bytes ? Status() : cache.Write(bytes);
    if (written.ok())
      SYSONE_INFO("choices of products kept in %s", cache.path().c_str());
    else
      SYSONE_WARNING("tuning cache not written: %s", written.message().c_str());
  }
  return Format("%zu usual passes run in %.1f s, %s", counts.size(),
                static_cast<double>(MonotonicUs() - begin_us) * 1e-6,
                backend.DescribeChoices().c_str());
}

}  // namespace sysone
