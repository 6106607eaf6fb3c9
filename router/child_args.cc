// SPDX-License-Identifier: Apache-2.0
#include "router/child_args.h"

#include <algorithm>

#include "router/child_process.h"

namespace sysone {

std::string ChildProgram(const InstanceFacts& facts, ProcessRole role) {
  return facts.program_dir +
         (role == ProcessRole::kWorker ? "/sysone-worker" : "/sysone-api-server");
}

std::vector<std::string> ChildArgs(const InstanceFacts& facts, ProcessRole role, uint32_t index) {
  std::vector<std::string> args = facts.user_args;
  // Of a flag given twice the last one counts, so these win over the user's. "=" keeps a value that looks like a flag one.
  const auto add = [&args](const char* flag, const std::string& value) {
    args.push_back(flag + ("=" + value));
  };
  add("--model-path", facts.model_path);
  add("--instance-name", facts.instance);
  add("--run-dir", facts.run_dir);
  add("--role-index", std::to_string(index));
  if (facts.options.served_model_names.empty()) add("--served-model-name", facts.served_name);
  if (role == ProcessRole::kApiServer) add("--listen-fd", std::to_string(kInheritedFd));
  if (role == ProcessRole::kWorker && facts.options.threads == 0)
    add("--threads", std::to_string(std::max(1, facts.cores / facts.options.data_parallel_size)));
  return args;
}

}  // namespace sysone
