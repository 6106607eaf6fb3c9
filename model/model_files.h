// A model on disk, opened: which files make it up, and the parts that each process reads. The API server takes the front
// end (config, tokenizer, template), a worker takes the config and the weights.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "model/chat_template_source.h"
#include "model/model_config.h"
#include "model/tensor_index.h"
#include "model/tokenizer.h"

namespace sysone {

struct ModelFrontEnd {
  ModelConfig config;
  std::shared_ptr<const Tokenizer> tokenizer;
  ChatTemplateSource chat_template;  // empty text: the checkpoint has none
  // 16 hex digits over config, tensor directory and file sizes, so that two processes can tell whether they opened the
  // same checkpoint; the weights themselves are not read for it.
  std::string fingerprint;
};

struct ModelWeights {
  ModelConfig config;
  TensorIndex tensors;      // checked: every tensor of the config, in the right shape, and no other
  std::string fingerprint;  // that of the front end
};

// `path` is a GGUF file, a Hugging Face folder (config.json, tokenizer.json, safetensors), or a folder with one GGUF file.
// kNotFound names the missing file; kCorrupt and kUnsupported name the file and the field, tensor or part.
Result<ModelFrontEnd> OpenModelFrontEnd(const std::string& path);
Result<ModelWeights> OpenModelWeights(const std::string& path);

}  // namespace sysone
