// The API server's part of opening a model: config, tokenizer and chat template.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "model/checkpoint.h"
#include "model/gguf.h"
#include "model/mapped_file.h"
#include "model/model_files.h"

namespace sysone {
namespace {

Status ReadHfFrontEnd(const std::string& folder, ModelFrontEnd& front) {
  const std::string path = folder + "/tokenizer.json";
  SYSONE_ASSIGN_OR_RETURN(const std::string json, ReadWholeFile(path));
  auto tokenizer = Tokenizer::FromHfJson(json);
  if (!tokenizer.ok()) return tokenizer.status().WithContext(path);
  front.tokenizer = *std::move(tokenizer);
  SYSONE_ASSIGN_OR_RETURN(front.chat_template, ReadHfChatTemplate(folder));
  return Status();
}

Status ReadGgufFrontEnd(const GgufFile& file, ModelFrontEnd& front) {
  auto tokenizer = Tokenizer::FromGguf(file);
  if (!tokenizer.ok()) return tokenizer.status().WithContext(file.path());
  front.tokenizer = *std::move(tokenizer);
  SYSONE_ASSIGN_OR_RETURN(front.chat_template, ReadGgufChatTemplate(file));
  return Status();
}

}  // namespace

Result<ModelFrontEnd> OpenModelFrontEnd(const std::string& path) {
  SYSONE_ASSIGN_OR_RETURN(Checkpoint checkpoint, OpenCheckpoint(path));
  ModelFrontEnd front;
  front.config = std::move(checkpoint.config);
  front.fingerprint = std::move(checkpoint.fingerprint);
  SYSONE_RETURN_IF_ERROR(checkpoint.gguf != nullptr ? ReadGgufFrontEnd(*checkpoint.gguf, front)
                                                    : ReadHfFrontEnd(checkpoint.folder, front));
  // An id without an embedding row would read outside the weights.
  if (front.tokenizer->vocab_size() > front.config.vocab)
    return Error(Code::kCorrupt, "%s: the tokenizer has %d ids, the embedding %d rows",
                 path.c_str(), front.tokenizer->vocab_size(), front.config.vocab);
  return front;
}

}  // namespace sysone
