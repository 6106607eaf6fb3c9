// The projections of a model and nothing else, by oneDNN with its own threads: the time below which a pass on this library
// cannot come. Weights are made up, packed as oneDNN likes them, and so many that they come from memory as in a pass.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "model/model_config.h"

namespace sysone {

// Products of all layers for one row, multiply and add counted as two.
double ProjectionWork(const ModelConfig& config);

// One thread calls it.
class OnednnFloor {
 public:
  virtual ~OnednnFloor() = default;
  // Makes what `rows` rows need.
  virtual void Prepare(int64_t rows) = 0;
  // Multiplies every projection of every layer once with that many rows.
  virtual void Run() = 0;
  // Whether the last run's product of the first projection is right in a few places, by a scalar computation.
  virtual bool ProductIsRight() const = 0;
  virtual std::string implementation() const = 0;  // oneDNN's name of its kernel
};

// `dtype`: int8 (u8 · s8 into s32), float32, or bfloat16 (into float32). Null where oneDNN has nothing for it.
std::unique_ptr<OnednnFloor> MakeOnednnFloor(const ModelConfig& config, const std::string& dtype,
                                             int threads);

}  // namespace sysone
