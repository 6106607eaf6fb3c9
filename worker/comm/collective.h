// How the ranks of a worker group work together: sums, messages from rank 0, and comparing notes. Behind it stand one rank
// alone, ranks that share memory, or MPI.
//
// All ranks make the same calls in the same order. There are no errors: a rank that cannot go on, or finds that another one
// does something else than itself, aborts its process; the launcher (mpirun) then ends the others, and the router starts the
// group anew. A half-broken group would be worse than none.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace sysone {

// One thread calls it.
class Collective {
 public:
  virtual ~Collective() = default;

  int32_t rank() const { return rank_; }
  int32_t size() const { return size_; }
  // For the log: "2 ranks over shared memory".
  virtual std::string Describe() const = 0;

  // values[i] becomes the sum of all ranks' values[i], added in the order of ranks: the same bits on every rank, in every
  // run and whatever else is summed with it. All ranks give equally many.
  virtual void AllReduceSum(std::span<float> values) = 0;
  // The same for a Tensor: `memory` is what Backend::Memory gave, the sum is there before the backend's next operation. Where
  // it is a device's memory, only a collective of devices can do it; sums of floats in the ranks' order, as above, are promised
  // by those alone that say so.
  virtual void SumTensor(std::span<float> memory) { AllReduceSum(memory); }
  // Rank 0's message goes to all. The others sleep until there is one, however long that takes.
  virtual void Broadcast(std::vector<std::byte>& message) = 0;
  // all[r] becomes rank r's `own`; all.size() == size(). Nobody returns before everybody has called.
  virtual void AllGather(uint64_t own, std::span<uint64_t> all) = 0;
  // Around a step that the ranks compute, up to the wait for its results.
  // A collective of devices watches meanwhile over what the waiting thread cannot see: an error between the devices, and
  // a sum that never comes. `what` lives as long as the program: "a pass", of `amount` rows.
  virtual void BeginStep(uint64_t number, const char* what, int64_t amount) {
    static_cast<void>(number), static_cast<void>(what), static_cast<void>(amount);
  }
  virtual void EndStep() {}
  // The orderly end: waits for all ranks. A process that ends without it takes its group down.
  virtual void Finish() = 0;

 protected:
  Collective(int32_t rank, int32_t size) : rank_(rank), size_(size) {}

 private:
  const int32_t rank_;
  const int32_t size_;
};

// One rank: nothing to do.
std::unique_ptr<Collective> MakeSoloCollective();

// Aborts, naming the ranks that differ from rank 0, unless all ranks come with the same `value`. `what` is compared: "the
// batch".
void CheckAgreement(Collective& collective, uint64_t value, const char* what);

}  // namespace sysone
