// SPDX-License-Identifier: Apache-2.0
#include "router/preload.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/exit_codes.h"
#include "base/log.h"
#include "router/child_process.h"
#include "router/device_choice.h"
#include "router/find_model.h"
#include "shm_arena/process_table.h"

namespace sysone {
namespace {

// For what ranks share while they run.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "sysone-preload-XXXXXX";
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The child's exit status; a signal that asks to stop ends it.
Result<int> RunToEnd(const ChildCommand& command, SignalSource& signals) {
  SYSONE_ASSIGN_OR_RETURN(const pid_t pid, StartChild(command));
  for (;;) {
    int wait_status = 0;
    const pid_t ended = waitpid(pid, &wait_status, WNOHANG);
    if (ended == pid) {
      if (WIFEXITED(wait_status)) return WEXITSTATUS(wait_status);
      return Error(Code::kInternal, "%s ended with %s", command.program.c_str(),
                   ExitText(wait_status).c_str());
    }
    signals.Wait(-1);
    if (signals.TakeStopRequests() > 0) {
      // Nothing is half done that could not stay so; ranks end with their mpirun.
      kill(-pid, SIGKILL);
      while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR) {
      }
      return Error(Code::kCancelled, "stopped");
    }
  }
}

Result<int> PreloadOrFail(InstanceFacts& facts, const ServeEnvironment& environment) {
  SYSONE_ASSIGN_OR_RETURN(facts.rank_hosts, PlanRankHosts(facts.options));
  SYSONE_RETURN_IF_ERROR(FindDevice(facts));
  if (!facts.on_gpus)
    return Error(Code::kUnsupported,
                 "there is nothing to preload for CPUs: their kernels are built in, and no pass is "
                 "recorded. For GPUs it takes sysone-worker-cuda beside this program (built where "
                 "CMake finds nvcc) and a driver of NVIDIA GPUs");
  SYSONE_ASSIGN_OR_RETURN(const auto signals, SignalSource::Create());
  SYSONE_RETURN_IF_ERROR(FindModel(environment, *signals, facts));
  const ScratchFolder folder;
  if (folder.path().empty()) return Error(Code::kUnavailable, "cannot make a temporary folder");
  facts.instance = "preload";
  facts.run_dir = folder.path();
  ChildCommand worker{ChildProgram(facts, ProcessRole::kWorker),
                      ChildArgs(facts, ProcessRole::kWorker, 0), -1, -1,
                      ChildEnvironment(facts, ProcessRole::kWorker)};
  worker.args.push_back("--preload-only");
  return RunToEnd(worker, *signals);
}

}  // namespace

int Preload(const ServeOptions& options, const std::vector<std::string>& args,
            const ServeEnvironment& environment) {
  InstanceFacts facts = FactsOf(options, args, environment);
  const auto exit_status = PreloadOrFail(facts, environment);
  if (exit_status.ok()) return *exit_status;
  SYSONE_ERROR("%s", exit_status.status().message().c_str());
  return exit_status.status().code() == Code::kCancelled ? kExitFailure : kExitSetup;
}

int PrintKernels(const std::string& program_dir) {
  const std::string dir = program_dir.empty() ? OwnProgramDir() : program_dir;
  printf(
      "Every kernel is compiled when sysone is built, so nothing is downloaded and nothing is "
      "compiled at a start: no\n"
      "compiler, cache or network has to be there, the first request is as fast as the next, and "
      "what runs is what was\n"
      "tested. Sizes of models and passes are arguments of the kernels. GPUs that are newer than "
      "the machine code take the\n"
      "PTX, which their driver translates once and keeps.\n");
  fflush(stdout);
  bool gpus = false;
  for (const char* const program : {"/sysone-worker", kCudaWorker}) {
    const std::string path = dir + program;
    if (access(path.c_str(), X_OK) != 0) continue;
    const auto signals = SignalSource::Create();
    const auto ended = signals.ok() ? RunToEnd({path, {"--print-kernels"}}, **signals)
                                    : Result<int>(signals.status());
    if (!ended.ok() || *ended != kExitOk) {
      fprintf(stderr, "sysone: %s does not run\n", path.c_str());
      return kExitFailure;
    }
    gpus |= program == kCudaWorker;
  }
  if (!gpus)
    printf("GPUs: none. %s%s is not there; it is built where CMake finds nvcc.\n", dir.c_str(),
           kCudaWorker);
  return kExitOk;
}

}  // namespace sysone
