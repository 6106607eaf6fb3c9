// SPDX-License-Identifier: Apache-2.0
#include "base/child_options.h"

#include <cstdio>
#include <string>
#include <vector>

#include "base/exit_codes.h"

namespace sysone {

std::variant<ServeOptions, int> ParseChildOptions(const char* program, int argc, char** argv,
                                                  bool inherits_socket) {
  const auto parsed = ParseServeOptions(program, std::vector<std::string>(argv + 1, argv + argc));
  if (!parsed.ok()) {
    fprintf(stderr, "%s: %s\n", program, parsed.status().message().c_str());
    return kExitUsage;
  }
  if (!parsed->text.empty()) {
    fputs(parsed->text.c_str(), stdout);
    return kExitOk;
  }
  const ServeOptions& options = parsed->options;
  if (options.role_index < 0 || options.run_dir.empty() || options.model_path.empty() ||
      (inherits_socket && options.listen_fd < 0)) {
    fprintf(stderr, "%s: is started by `sysone serve`, which tells it its instance and model\n",
            program);
    return kExitUsage;
  }
  return options;
}

}  // namespace sysone
