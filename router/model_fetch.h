// Getting a model that is not on the disk yet: scripts/fetch_model does it, shows its progress on standard error and
// prints the path.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"
#include "router/signals.h"

namespace sysone {

// Runs `script` for `model`. kCancelled when a signal asked to stop meanwhile; the script's own message, which says why it
// failed, is on standard error by then.
Result<std::string> FetchModel(const std::string& script, const std::string& model,
                               SignalSource& signals);

}  // namespace sysone
