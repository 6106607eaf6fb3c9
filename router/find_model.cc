// SPDX-License-Identifier: Apache-2.0
#include "router/find_model.h"

#include "base/log.h"
#include "router/child_process.h"
#include "router/device_choice.h"
#include "router/machine.h"
#include "router/model_fetch.h"
#include "router/preflight.h"

namespace sysone {
namespace {

// "org/name": what may be fetched from the hub though no catalogue lists it. Paths that start like paths are not.
bool LooksLikeHubId(const std::string& model) {
  const size_t slash = model.find('/');
  return slash != std::string::npos && slash > 0 && model[0] != '.' && model[0] != '~' &&
         model.find('/', slash + 1) == std::string::npos && slash + 1 < model.size();
}

}  // namespace

Status FindModel(const ServeEnvironment& environment, SignalSource& signals, InstanceFacts& facts) {
  const std::string& model = facts.options.model;
  const auto found = ResolveModel(model, environment.caches);
  if (found.ok()) {
    facts.model_path = found->path;
    facts.served_name = found->served_name;
  } else if (found.status().code() == Code::kNotFound && LooksLikeHubId(model)) {
    facts.served_name = model.substr(0, model.find('@'));
  } else {
    return found.status();
  }
  if (facts.model_path.empty()) {
    SYSONE_INFO("'%s' is not on this machine yet; fetching it", model.c_str());
    SYSONE_ASSIGN_OR_RETURN(facts.model_path, FetchModel(environment.fetch_script, model, signals));
  }
  SYSONE_ASSIGN_OR_RETURN(const ModelFacts model_facts,
                          InspectModel(facts.model_path, facts.options.dtype));
  facts.model_fingerprint = model_facts.fingerprint;
  // Weights, keys and values are in the devices' memory, which the workers look after.
  if (facts.on_gpus) return {};
  return CheckMemory(model_facts.weight_bytes, facts.options, LocalRanks(facts),
                     AvailableMemoryBytes());
}

InstanceFacts FactsOf(const ServeOptions& options, const std::vector<std::string>& args,
                      const ServeEnvironment& environment) {
  InstanceFacts facts;
  facts.options = options;
  facts.user_args = args;
  facts.program_dir = options.program_dir.empty() ? OwnProgramDir() : options.program_dir;
  facts.environment = environment.variables;
  facts.cores = AvailableCores();
  facts.tuning_dir = environment.tuning_dir;
  return facts;
}

Status FindDevice(InstanceFacts& facts) {
  SYSONE_ASSIGN_OR_RETURN(const DeviceChoice device,
                          ChooseDevice(facts.options, facts.program_dir));
  if (!device.reason.empty()) SYSONE_INFO("%s", device.reason.c_str());
  facts.on_gpus = device.on_gpus;
  return {};
}

}  // namespace sysone
