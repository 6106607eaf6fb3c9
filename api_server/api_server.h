// An API server process from its options to its end.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/serve_options.h"
#include "base/status.h"

namespace sysone {

// Attaches to the instance's arena, reads the model's front end, serves HTTP on the inherited socket until it is told to stop,
// then drains. Returns why it could not start; once it serves, only ok.
Status RunApiServer(const ServeOptions& options);

}  // namespace sysone
