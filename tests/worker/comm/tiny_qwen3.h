// A Qwen3 checkpoint of three layers with random weights, for what the committed ones do not have: heads that divide by neither
// two nor four ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>

namespace sysone {

// Writes config.json and model.safetensors (float32, 768 tokens, hidden size 64, heads of 32) into `folder`, which is made. The
// same numbers give the same bytes everywhere.
void WriteTinyQwen3(const std::filesystem::path& folder, int64_t heads, int64_t kv_heads);

}  // namespace sysone
