// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/comm/mpirun.h"

#include <sys/wait.h>

#include <cstdio>

#include "base/check.h"

namespace sysone {

RanksRun Mpirun(const std::string& arguments) {
  const std::string command =
      "timeout -s KILL 60 " SYSONE_MPIRUN
      " -q --allow-run-as-root --host localhost:16 --oversubscribe --bind-to none"
      " --mca plm isolated --mca pml ob1 --mca btl self,vader --mca oob_tcp_if_include lo"
      " --mca mpi_yield_when_idle 1 --mca odls_base_sigkill_timeout 0 " +
      arguments + " 2>&1 </dev/null";
  FILE* const pipe = popen(command.c_str(), "r");
  SYSONE_CHECK(pipe != nullptr, "no shell");
  RanksRun run;
  char buffer[4096];
  for (size_t count; (count = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    run.output.append(buffer, count);
  const int status = pclose(pipe);
  run.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return run;
}

}  // namespace sysone
