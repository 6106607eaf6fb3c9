// Real processes under mpirun, for tests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace sysone {

struct RanksRun {
  int exit_status = -1;  // mpirun's own
  std::string output;    // of all ranks, both streams
};

// Runs mpirun with these arguments behind those that every test needs: processes of this machine, any number of them on any
// number of cores. Killed after a minute. "-np 2 program words", or several programs: "-np 1 a : -np 1 b".
RanksRun Mpirun(const std::string& arguments);

}  // namespace sysone
