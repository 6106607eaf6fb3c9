// The program `sysone`.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/exit_codes.h"
#include "base/launch_place.h"
#include "base/log.h"
#include "base/node_plan.h"
#include "base/serve_flags.h"
#include "base/serve_options.h"
#include "link/link_keys.h"
#include "router/preload.h"
#include "router/router.h"

namespace {

constexpr char kUsage[] =
    "Usage: sysone serve [MODEL] [flags]   serve a model (sysone serve --help shows the flags)\n"
    "       sysone preload [MODEL] [flags] make a model ready on this machine's GPUs, without "
    "serving\n"
    "       sysone download-kernels        what is built in; fetches nothing\n"
    "       sysone keys DIR                make keys for hosts that work together\n"
    "       sysone flags --markdown        the flags as tables\n"
    "       sysone --version\n";

std::string FromEnvironment(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

int Say(const std::string& text) {
  fputs(text.c_str(), stdout);
  return sysone::kExitOk;
}

int MakeKeys(const std::string& dir) {
  const sysone::Status made = sysone::WriteLinkKeys(dir);
  if (!made.ok()) {
    fprintf(stderr, "sysone: %s\n", made.message().c_str());
    return sysone::kExitFailure;
  }
  return Say(
      sysone::Format("%s: router.key and hosts.pub for the router's host, host.key and "
                     "router.pub for the others\n",
                     dir.c_str()));
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  const std::string command = args.empty() ? "" : args[0];
  if (command == "--help" || command == "-h") return Say(kUsage);
  if (command == "--version") return Say(sysone::Format("sysone %s\n", sysone::SysoneVersion()));
  if (command == "flags" && args.size() == 2 && args[1] == "--markdown")
    return Say(sysone::ServeFlagsMarkdown());
  if (command == "keys" && args.size() == 2) return MakeKeys(args[1]);
  const bool dry_run = args.size() == 2 && args[1] == "--dry-run";
  if (command == "download-kernels" && (args.size() == 1 || dry_run))
    return sysone::PrintKernels("");
  if (command != "serve" && command != "preload") {
    fputs(kUsage, stderr);
    return sysone::kExitUsage;
  }
  args.erase(args.begin());
  const auto place = sysone::ResolveLaunchPlace([](const char* name) { return getenv(name); });
  if (!place.ok()) {
    fprintf(stderr, "sysone: %s\n", place.status().message().c_str());
    return sysone::kExitUsage;
  }
  const auto node_flags = sysone::NodeFlags(*place);
  args.insert(args.begin(), node_flags.begin(), node_flags.end());
  const auto parsed = sysone::ParseServeOptions("sysone " + command, args);
  if (!parsed.ok()) {
    fprintf(stderr, "sysone: %s\n", parsed.status().message().c_str());
    return sysone::kExitUsage;
  }
  if (!parsed->text.empty()) return Say(parsed->text);
  auto environment = sysone::ReadServeEnvironment(FromEnvironment);
  for (char** line = environ; *line != nullptr; ++line) environment.variables.emplace_back(*line);
  environment.place = *place;
  sysone::InitLog(sysone::kKeeperLogName, sysone::LogLevelOf(parsed->options));
  return command == "serve" ? sysone::Serve(parsed->options, args, environment)
                            : sysone::Preload(parsed->options, args, environment);
}
