// How the programs begin that `sysone serve` starts: with its own options and, behind them, what it tells each child.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <variant>

#include "base/serve_options.h"

namespace sysone {

// Options, or the exit status with which `program` ends at once: help or version was printed, or stderr says what is wrong with a
// flag, or that the program was started by somebody else. `inherits_socket`: it needs --listen-fd.
std::variant<ServeOptions, int> ParseChildOptions(const char* program, int argc, char** argv,
                                                  bool inherits_socket);

}  // namespace sysone
