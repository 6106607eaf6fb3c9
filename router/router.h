// `sysone serve`: from a model's name to a supervised instance, and back to nothing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/launch_place.h"
#include "base/serve_options.h"
#include "model/model_path.h"

namespace sysone {

// What comes from the environment and the build.
struct ServeEnvironment {
  CachePlaces caches;
  std::string tuning_dir;       // ${SYSONE_CACHE:-${XDG_CACHE_HOME:-~/.cache}/sysone}/tuning
  std::string xdg_runtime_dir;  // may be empty
  std::string fetch_script;     // scripts/fetch_model
  std::vector<std::string>
      variables;      // all of them, "NAME=value"; not filled by ReadServeEnvironment
  LaunchPlace place;  // the same
};

// `variable` gives an environment variable's value, "" when it is not set.
ServeEnvironment ReadServeEnvironment(const std::function<std::string(const char*)>& variable);

// How the keeper, which is what the user started, calls itself in the log; what it starts is called by its role.
inline constexpr char kKeeperLogName[] = "sysone";

// Returns the program's exit status. Whatever happens, no child, no shared segment and no folder stays behind; errors are
// one line on standard error. `args`: what stands behind `sysone serve`.
int Serve(const ServeOptions& options, const std::vector<std::string>& args,
          const ServeEnvironment& environment);

}  // namespace sysone
