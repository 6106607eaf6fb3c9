// A worker process from its options to its end.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/serve_options.h"
#include "base/status.h"

namespace sysone {

// This process among the ranks that its launcher started, by what the launcher says before MPI does. Pure.
// `variable` gives an environment variable's value, or null. nullopt: no launcher that is known here.
std::optional<int32_t> RankOfLauncher(const std::function<const char*(const char*)>& variable);

// Joins the other ranks of --tensor-parallel-size, if there are any, and loads its part of the model. Rank 0 attaches to the
// instance's arena and serves jobs until it is told to stop; the others do what it tells them. Returns why it could not
// start; once it serves, only ok. `launcher_rank`: as of RankOfLauncher.
Status RunWorker(const ServeOptions& options, std::optional<int32_t> launcher_rank);

}  // namespace sysone
