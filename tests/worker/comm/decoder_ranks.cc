// One rank of a group that runs tiny models: every golden prompt in one pass and in two pieces, all logits of its last token.
//   decoder_ranks shared|mpi FOLDER,FOLDER,… DTYPE …     a checkpoint in each folder, named like its family
// Rank 0 prints, for each family and type, one line "family dtype values…" of exact floats.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <sstream>
#include <string>

#include "base/log.h"
#include "kernels/backend.h"
#include "model/model_files.h"
#include "worker/comm/mpi_group.h"
#include "worker/decoder.h"
#include "worker/rank_group.h"

namespace sysone {
namespace {

template <class T>
T Must(Result<T> result) {
  SYSONE_CHECK(result.ok(), "%s", result.status().message().c_str());
  return std::move(result).value();
}

std::vector<TokenId> Prompt(int length, int seed, int vocabulary) {
  std::vector<TokenId> ids;
  for (int i = 0; i < length; ++i) ids.push_back((i * i * 31 + i * 7 + seed * 101) % vocabulary);
  return ids;
}

// All logits, then log-sum-exp and argmax.
std::vector<float> ReadAll(RankLeader& leader, const Pass& pass) {
  std::vector<float> states(static_cast<size_t>(leader.hidden())), values(pass.label_ids().size());
  std::vector<HeadSummary> summary(1);
  leader.Run(pass, states, values, summary);
  values.push_back(summary[0].log_sum_exp);
  values.push_back(static_cast<float>(summary[0].argmax));
  return values;
}

// The prompt in one pass, and in two whose second one sees the rows of the first: must be the same bits.
std::vector<float> RunPrompt(RankLeader& leader, const std::vector<TokenId>& ids,
                             const std::vector<TokenId>& labels) {
  const auto length = static_cast<int32_t>(ids.size());
  std::vector<int32_t> rows(ids.size());
  std::iota(rows.begin(), rows.end(), 100);
  const KvSpan whole{100, length};
  Pass pass;
  pass.Clear();
  pass.AddRun(ids, 0, rows, {&whole, 1});
  pass.AddRead(length - 1, {ids, labels}, true);
  pass.Finish();
  const std::vector<float> once = ReadAll(leader, pass);
  if (length == 1) return once;

  const auto half = static_cast<size_t>(length / 2);
  for (int32_t& row : rows) row += 150;
  const KvSpan first{250, length / 2},
      all[] = {{250, length / 2}, {250 + length / 2, length - length / 2}};
  pass.Clear();
  pass.AddRun(std::span(ids).first(half), 0, std::span(rows).first(half), {&first, 1});
  pass.Finish();
  leader.Run(pass, {}, {}, {});
  pass.Clear();
  pass.AddRun(std::span(ids).subspan(half), length / 2, std::span(rows).subspan(half), all);
  pass.AddRead(length - length / 2 - 1, {ids, labels}, true);
  pass.Finish();
  const std::vector<float> twice = ReadAll(leader, pass);
  SYSONE_CHECK(std::memcmp(once.data(), twice.data(), once.size() * sizeof(float)) == 0,
               "a prompt of %d tokens in two passes has other values than in one", length);
  return once;
}

void RunModel(Collective& ranks, const std::filesystem::path& folder, const std::string& dtype) {
  BackendOptions options;
  options.name = "cpu";
  options.dtype = dtype;
  options.threads = 1;
  const auto backend = Must(MakeBackend(options));
  const ModelWeights weights = Must(OpenModelWeights(folder.string()));
  const DecoderLimits limits{512, 8, 512, 512};
  const auto decoder = Must(Decoder::Load(
      *backend, weights.config, weights.tensors, limits, [](double) {}, &ranks));
  if (ranks.rank() != 0) return FollowLeader(*decoder, ranks);
  RankLeader leader(*decoder, ranks);
  std::vector<TokenId> labels(static_cast<size_t>(weights.config.vocab));
  std::iota(labels.begin(), labels.end(), 0);
  printf("%s %s", folder.filename().c_str(), dtype.c_str());
  for (const int length : {1, 2, 17, 100})
    for (const float value :
         RunPrompt(leader, Prompt(length, length, weights.config.vocab), labels))
      printf(" %a", static_cast<double>(value));
  printf("\n");
  leader.End();
}

}  // namespace
}  // namespace sysone

int main(int argc, char** argv) {
  SYSONE_CHECK(argc > 3, "usage: decoder_ranks shared|mpi FOLDER,… DTYPE …");
  sysone::JoinOptions join;
  join.share_memory = std::string(argv[1]) == "shared";
  const auto ranks = sysone::JoinMpiGroup(join);
  sysone::InitLog("rank-" + std::to_string(ranks->rank()), sysone::LogLevel::kInfo);
  std::istringstream folders(argv[2]);
  for (std::string folder; std::getline(folders, folder, ',');)
    for (int i = 3; i < argc; ++i) sysone::RunModel(*ranks, folder, argv[i]);
  ranks->Finish();
  return 0;
}
