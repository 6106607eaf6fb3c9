// Rotary position tables from a checkpoint's RoPE settings. Pure.
//
// Angles are formed as the reference framework forms them, a float32 position times a float32
// frequency, because late positions of low frequencies would otherwise differ by more than the
// tests' tolerance.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "model/model_config.h"

namespace sysone {

// Radians a position for each pair of a head: theta^(-2i / head_dim), i < head_dim / 2, then the
// scaling:
//   linear  every frequency / factor;
//   llama3  wavelengths above original / low_freq_factor are divided by factor, those below
//   original / high_freq_factor
//           stay, and those between are blended;
//   yarn    pairs that turn more than beta_fast times in the original length stay, those under
//   beta_slow are divided by
//           factor, a linear ramp between (Peng et al. 2023, section 3.2).
std::vector<float> RopeFrequencies(const RopeConfig& rope, int32_t head_dim);

// What cos and sin are multiplied by: yarn's attention factor (0.1 ln factor + 1 unless the config
// states one), else 1.
float RopeAttentionFactor(const RopeConfig& rope);

struct RopeValues {
  std::vector<float> cos;  // [positions, head_dim / 2]
  std::vector<float> sin;
};
// The angles of positions 0 … positions - 1, scaled as the config says.
RopeValues MakeRopeValues(const RopeConfig& rope, int32_t head_dim, int32_t positions);

}  // namespace sysone
