// A model on disk, opened: which files make it up, and the parts that each process reads. The API server takes the front
// end (config, tokenizer, template), a worker takes the config and the weights.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/status.h"
#include "model/model_config.h"
#include "model/tensor_index.h"
#include "model/tokenizer.h"

namespace sysone {

// What a chat template needs besides the conversation.
struct ChatTemplateSource {
  std::string text;                                     // Jinja source
  std::map<std::string, std::string> special_tokens;    // "bos_token", "eos_token", … as the template sees them
};

struct ModelFrontEnd {
  ModelConfig config;
  std::shared_ptr<const Tokenizer> tokenizer;
  ChatTemplateSource chat_template;  // empty text: the checkpoint has none
  std::string fingerprint;           // 16 hex digits; equal when the files' directory and sizes are equal
};

struct ModelWeights {
  ModelConfig config;
  TensorIndex tensors;
  std::string fingerprint;
};

// `path` is a .gguf file or a Hugging Face folder. Errors name the file and the field.
Result<ModelFrontEnd> OpenModelFrontEnd(const std::string& path);
Result<ModelWeights> OpenModelWeights(const std::string& path);

}  // namespace sysone
