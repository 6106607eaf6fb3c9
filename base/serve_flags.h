// The table of all flags: names, where the value goes, bounds and help. Parsing (serve_options.cc),
// `--help` and the README's table (`sysone flags --markdown`) all read this one table.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/serve_options.h"

namespace sysone {

// Where a flag's value goes. A bool is a switch without a value; a list takes several values and
// may be repeated.
using FlagMember = std::variant<std::string ServeOptions::*, int ServeOptions::*,
                                int64_t ServeOptions::*, double ServeOptions::*,
                                bool ServeOptions::*, std::vector<std::string> ServeOptions::*>;

struct ServeFlag {
  std::string_view names;  // "--long" or "-s,--long"
  FlagMember member;
  std::string_view group;  // heading in --help; "" hides the flag
  std::string_view value;  // placeholder; for a choice of words "a|b|c", which is also the check;
                           // "" for a switch
  std::string_view help;
  double least = 0;  // numbers: inclusive bounds
  double most = 1e15;
};

// In the order of the help.
std::span<const ServeFlag> ServeFlags();

// "--long" of a flag.
std::string_view LongName(const ServeFlag& flag);

// The flag with this long or short name; nullptr when there is none.
const ServeFlag* FindServeFlag(std::string_view name);

// The visible flag whose long name is nearest to `name` by edit distance; "" when none is near.
std::string_view NearestServeFlag(std::string_view name);

// Whether the flag stands alone, and whether it takes several values.
bool IsSwitch(const ServeFlag& flag);
bool IsList(const ServeFlag& flag);

// The visible flags by group: as the text of `PROGRAM --help`, and as the tables of README.md.
std::string ServeHelpText(const std::string& program);
std::string ServeFlagsMarkdown();

}  // namespace sysone
