// A collective for ranks with a GPU each: NCCL sums Tensors where they lie, in the queue of the backend's operations, and so also
// within the passes that the backend records. Messages, comparisons and sums of host memory go through the collective of the host
// (shared memory, MPI) that it is made from.
//
// What is promised of SumTensor's bits. All ranks get the same ones. They are the same in every run on the same machines, devices
// and NCCL with as many floats, because NCCL chooses its algorithm and its route by these alone; NCCL_ALGO and NCCL_PROTO fix the
// algorithm. Unless two ranks are all: then there is one order to add in, and the bits are those of the host's sums. With more
// ranks the order in which a float's summands meet depends on its place and on how many floats are summed, so a row may differ
// in its last bits with the size of the batch. Whole numbers whose sums are below 2^24 come out exactly in any order: sums of
// such numbers prove that every summand came once and went to its place, and nothing about rounding.
//
// Faults. NCCL reports some (a connection that broke, a network that fails) and waits without a word for a peer that is dead or
// stuck. So a thread polls for errors while a step is in work (Collective::BeginStep), and loses patience after `stuck_after_us`;
// either way the process says rank, step and cause, aborts the communicator, which stops its kernels and tells the peers, and
// ends. A dead process of the group is noticed by mpirun first, which ends the others.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "worker/comm/collective.h"

namespace sysone {

// The device that a rank computes on.
struct RankDevice {
  void* queue = nullptr;   // its cudaStream_t; outlives the collective
  std::string name;        // "NVIDIA H200"
  std::string pci_bus_id;  // "0000:41:00.0"
  std::string machine;  // the same for all processes of a machine and for no other's: its boot id
  std::string host;     // the machine's name, for people
  std::string reach;    // for the log: how this device reaches the other ones that the process sees
};

struct NcclOptions {
  int64_t join_within_us =
      60'000'000;  // from the first rank's call to the last one's, and connecting
  int64_t stuck_after_us = 60'000'000;  // as of MakeMpiCollective, for steps on the device
  int64_t look_every_us = 20'000;       // as of StepWatch
  int64_t abort_within_us =
      2'000'000;  // aborting a communicator may itself wait for what is broken
};

// Of all ranks of `host`, each with its device current in the calling thread. kInvalidArgument when two ranks have one device. An
// NCCL that fails or is not ready in time ends the process, as does everything that fails later. What was recorded with SumTensor
// must be gone before Finish, which waits for it.
Result<std::unique_ptr<Collective>> JoinNccl(std::unique_ptr<Collective> host,
                                             const RankDevice& device, const NcclOptions& options);

}  // namespace sysone
