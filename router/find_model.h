// What is found out before anything is started, of an instance or of a model that is only made ready: device and model.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "router/child_args.h"
#include "router/router.h"
#include "router/signals.h"

namespace sysone {

// What the command line, the environment and the machine say. `args`: behind `sysone serve`.
InstanceFacts FactsOf(const ServeOptions& options, const std::vector<std::string>& args,
                      const ServeEnvironment& environment);

// Sets facts.on_gpus (router/device_choice.h), with a line in the log.
Status FindDevice(InstanceFacts& facts);

// Sets path, name and fingerprint of the model, which is fetched if it is not on this machine. Not ok also where it does not fit
// the memory; kCancelled when a signal asked to stop.
Status FindModel(const ServeEnvironment& environment, SignalSource& signals, InstanceFacts& facts);

}  // namespace sysone
