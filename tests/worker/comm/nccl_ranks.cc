// One rank of the tests of the collective over devices: joins the group that mpirun started, over the fake NCCL, and does what the
// word says. Rank 1 is the one that something happens to.
//   check         sums of whole numbers against the host's, many lengths, several at once; messages; comparing notes
//   floats        sums of any numbers: two ranks have the host's bits, more of them another order of adding
//   slow          rank 1 is late with a sum, and is waited for
//   twins         ranks 0 and 1 are on one device: must be refused
//   strangers     the same device's number on two machines: must be taken
//   never-joins, joins-badly, bad-call, bad-sum, endless-sum, abort-hangs, killed, stopped: must end the group and say so
// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "base/log.h"
#include "tests/worker/comm/fake_nccl/fake_nccl.h"
#include "tests/worker/comm/fake_nccl/fake_stream.h"
#include "worker/comm/mpi_group.h"
#include "worker/comm/nccl_collective.h"

namespace sysone {
namespace {

constexpr int64_t kBadSum = 3;

NcclFaults FaultsOf(const std::string& what) {
  NcclFaults faults;
  if (what == "never-joins") faults.never_joins = true;
  if (what == "joins-badly") faults.joins_with = ncclSystemError;
  if (what == "slow") faults.slow_sum = kBadSum;
  if (what == "bad-call") faults.bad_call = kBadSum;
  if (what == "bad-sum") faults.bad_sum = kBadSum;
  if (what == "endless-sum" || what == "abort-hangs") faults.endless_sum = kBadSum;
  faults.abort_hangs = what == "abort-hangs";
  if (what == "killed" || what == "stopped") faults.until = kBadSum;
  faults.at_until =
      what == "killed" ? [] { kill(getpid(), SIGKILL); } : [] { kill(getpid(), SIGSTOP); };
  return faults;
}

// Whole numbers, of which sums of 16 ranks are below 2^24.
std::vector<float> WholeNumbers(int32_t rank, size_t length) {
  std::vector<float> values(length);
  for (size_t i = 0; i < length; ++i)
    values[i] = static_cast<float>(
        static_cast<int>((i * 2654435761u + static_cast<size_t>(rank) * 40503u) % 1000003) -
        500001);
  return values;
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

void CheckSums(Collective& ranks, FakeStream& stream) {
  std::vector<std::vector<float>> values, expected;
  uint64_t step = 0;
  for (const size_t length : {0, 1, 2, 3, 15, 16, 17, 576, 999, 1000, 1001, 4099, 60000}) {
    values.push_back(WholeNumbers(ranks.rank(), length));
    expected.push_back(values.back());
    ranks.BeginStep(++step, "a sum of floats", static_cast<int64_t>(length));
    ranks.SumTensor(values.back());
    ranks.AllReduceSum(expected.back());
    stream.Wait();
    ranks.EndStep();
    SYSONE_CHECK(SameBits(values.back(), expected.back()), "a sum of %zu floats", length);
  }
  // Several, one behind the other, as in a pass: the sums of sums.
  ranks.BeginStep(++step, "many sums", static_cast<int64_t>(values.size()));
  for (auto& sum : values) {
    for (float& value : sum) value = static_cast<float>(static_cast<int>(value) % 1000);
    ranks.SumTensor(sum);
    ranks.SumTensor(sum);
  }
  stream.Wait();
  ranks.EndStep();
  for (size_t i = 0; i < values.size(); ++i) {
    for (float& value : expected[i])
      value = static_cast<float>(static_cast<int>(value) % 1000 * ranks.size() * ranks.size());
    SYSONE_CHECK(SameBits(values[i], expected[i]), "sums of sums of %zu floats", values[i].size());
  }
}

void CheckMessages(Collective& ranks) {
  std::vector<std::byte> message;
  if (ranks.rank() == 0) message.assign(100000, std::byte{7});
  ranks.Broadcast(message);
  SYSONE_CHECK(message.size() == 100000 && message[99999] == std::byte{7}, "a message");
  std::vector<uint64_t> all(static_cast<size_t>(ranks.size()));
  ranks.AllGather(static_cast<uint64_t>(ranks.rank()) * 3, all);
  for (size_t r = 0; r < all.size(); ++r) SYSONE_CHECK(all[r] == r * 3, "the note of rank %zu", r);
}

void CheckFloats(Collective& ranks, FakeStream& stream) {
  std::vector<float> values = WholeNumbers(ranks.rank(), 20000);
  for (size_t i = 0; i < values.size(); ++i) values[i] *= 1.f / static_cast<float>(3 + i % 1000);
  std::vector<float> expected = values;
  ranks.SumTensor(values);
  ranks.AllReduceSum(expected);
  stream.Wait();
  const bool same = SameBits(values, expected);
  SYSONE_CHECK(same == (ranks.size() <= 2), "%d ranks: %s bits", ranks.size(),
               same ? "the same" : "other");
}

void Run(Collective& ranks, FakeStream& stream, const std::string& what) {
  if (what == "check") {
    CheckSums(ranks, stream);
    CheckMessages(ranks);
  } else if (what == "floats") {
    CheckFloats(ranks, stream);
  } else {
    std::vector<float> values(5000);
    for (uint64_t step = 1; step <= kBadSum + 2; ++step) {
      ranks.BeginStep(step, "a sum of floats", static_cast<int64_t>(values.size()));
      ranks.SumTensor(values);
      stream.Wait();
      ranks.EndStep();
    }
  }
  if (ranks.rank() == 0) printf("%s: all well\n", ranks.Describe().c_str());
}

}  // namespace
}  // namespace sysone

int main(int argc, char** argv) {
  using namespace sysone;
  SYSONE_CHECK(argc == 3, "usage: nccl_ranks shared|mpi WORD");
  const std::string what = argv[2];
  JoinOptions join;
  join.share_memory = std::string(argv[1]) == "shared";
  auto host = JoinMpiGroup(join);
  const int32_t rank = host->rank();
  InitLog("rank-" + std::to_string(rank), LogLevel::kInfo);
  if (rank == 1) SetNcclFaults(FaultsOf(what));
  FakeStream stream;
  RankDevice device{stream.handle(), "Fake device", Format("0000:%02x:00.0", rank),
                    "machine",       "here",        "alone"};
  if (rank <= 1 && what == "twins") device.pci_bus_id = "0000:aa:00.0";
  if (what == "strangers")
    device.pci_bus_id = "0000:aa:00.0", device.machine += std::to_string(rank);
  NcclOptions options;
  options.look_every_us = 1'000;
  // Elsewhere a rank may lose its core for a while on a loaded machine.
  if (what == "endless-sum" || what == "abort-hangs" || what == "stopped")
    options.stuck_after_us = 300'000;
  if (what == "never-joins") options.join_within_us = 300'000;
  if (what == "abort-hangs") options.abort_within_us = 100'000;
  auto ranks = JoinNccl(std::move(host), device, options);
  if (!ranks.ok()) {
    SYSONE_ERROR("%s", ranks.status().message().c_str());
    return 3;
  }
  Run(**ranks, stream, what);
  (*ranks)->Finish();
  return 0;
}
