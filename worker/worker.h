// A worker process from its options to its end.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/serve_options.h"
#include "base/status.h"

namespace sysone {

// Attaches to the instance's arena, loads the model, serves jobs until it is told to stop. Returns why it could not start;
// once it serves, only ok.
Status RunWorker(const ServeOptions& options);

}  // namespace sysone
