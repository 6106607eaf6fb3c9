// One rank of the collective tests: joins the group that mpirun started, checks every operation, and prints one line for the
// test to compare. The word behind the options says what it does:
//   check    sums of many lengths, messages of many sizes, comparing notes
//   apart    rank 1 sums other lengths than rank 0: must abort and say so
//   differ   rank 1 comes to an agreement with another value: must abort and say so
//   stuck    rank 1 never comes to a sum: the others must name it
//   call     calls the roll before it joins, in the folder behind, with the patience behind that in seconds
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "base/log.h"
#include "worker/comm/mpi_group.h"
#include "worker/comm/roll_call.h"

namespace sysone {
namespace {

// Values of very different sizes, so that another order of adding gives other bits.
float Value(int32_t rank, size_t i) {
  const uint64_t mixed = (i * 2654435761u + static_cast<uint64_t>(rank) * 40503u) % 100003;
  return std::ldexp(static_cast<float>(mixed) - 50001.f,
                    static_cast<int>((i + static_cast<size_t>(rank) * 7) % 30) - 15);
}

uint64_t Hash(uint64_t hash, const void* data, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 0x100000001b3u;
  return hash;
}

uint64_t CheckSums(Collective& ranks) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const size_t length :
       {0, 1, 2, 3, 15, 16, 17, 100, 576, 4099, 262143, 262144, 262145, 600001}) {
    std::vector<float> values(length);
    for (size_t i = 0; i < length; ++i) values[i] = Value(ranks.rank(), i);
    ranks.AllReduceSum(values);
    for (size_t i = 0; i < length; ++i) {
      float expected = Value(0, i);
      for (int32_t r = 1; r < ranks.size(); ++r) expected += Value(r, i);
      SYSONE_CHECK(std::memcmp(&values[i], &expected, sizeof expected) == 0,
                   "value %zu of %zu is %a, not %a", i, length, static_cast<double>(values[i]),
                   static_cast<double>(expected));
    }
    hash = Hash(hash, values.data(), length * sizeof(float));
  }
  return hash;
}

void CheckMessages(Collective& ranks) {
  std::vector<std::byte> message;
  for (const size_t bytes : {0, 1, 1000, 1048576, 1048577, 5000000, 3}) {
    message.clear();
    if (ranks.rank() == 0)
      for (size_t i = 0; i < bytes; ++i) message.push_back(static_cast<std::byte>(i * 7 + bytes));
    ranks.Broadcast(message);
    SYSONE_CHECK(message.size() == bytes, "%zu bytes of %zu", message.size(), bytes);
    for (size_t i = 0; i < bytes; ++i)
      SYSONE_CHECK(message[i] == static_cast<std::byte>(i * 7 + bytes), "byte %zu of %zu", i,
                   bytes);
  }
}

void CheckNotes(Collective& ranks) {
  std::vector<uint64_t> all(static_cast<size_t>(ranks.size()));
  for (uint64_t round = 0; round < 100; ++round) {
    ranks.AllGather(round << 32 | static_cast<uint64_t>(ranks.rank()), all);
    for (size_t r = 0; r < all.size(); ++r)
      SYSONE_CHECK(all[r] == (round << 32 | r), "round %zu, rank %zu", static_cast<size_t>(round),
                   r);
  }
  CheckAgreement(ranks, 17, "a number that all have");
}

void Run(Collective& ranks, const std::string& what) {
  std::vector<float> values(8);
  if (what == "check") {
    const uint64_t first = CheckSums(ranks);
    CheckMessages(ranks);
    CheckNotes(ranks);
    SYSONE_CHECK(CheckSums(ranks) == first, "another sum the second time");
    if (ranks.rank() == 0)
      printf("%s: all well, sums %016llx\n", ranks.Describe().c_str(),
             static_cast<unsigned long long>(first));
  } else if (what == "apart") {
    values.resize(ranks.rank() == 1 ? 9 : 8);
    ranks.AllReduceSum(values);
  } else if (what == "differ") {
    CheckAgreement(ranks, ranks.rank() == 1 ? 1 : 0, "the colour");
  } else if (what == "stuck") {
    std::vector<uint64_t> all(static_cast<size_t>(ranks.size()));
    ranks.AllGather(static_cast<uint64_t>(ranks.rank()), all);
    if (ranks.rank() == 1)
      for (;;) pause();
    ranks.AllReduceSum(values);
  }
}

}  // namespace
}  // namespace sysone

int main(int argc, char** argv) {
  SYSONE_CHECK(argc >= 3,
               "usage: collective_ranks shared|mpi check|apart|differ|stuck|call FOLDER SECONDS");
  std::optional<sysone::RollCall> roll_call;
  if (argc == 5) {
    const char* const rank = getenv("OMPI_COMM_WORLD_RANK");
    const char* const size = getenv("OMPI_COMM_WORLD_SIZE");
    SYSONE_CHECK(rank != nullptr && size != nullptr, "not started by mpirun");
    roll_call.emplace(argv[3], "group", atoi(rank), atoi(size), atoi(argv[4]) * 1'000'000);
  }
  sysone::JoinOptions options;
  options.share_memory = std::string(argv[1]) == "shared";
  // Elsewhere a rank may lose its core for a while on a loaded machine.
  if (std::string(argv[2]) == "stuck") options.stuck_after_us = 200'000;
  const auto ranks = sysone::JoinMpiGroup(options);
  roll_call.reset();
  sysone::InitLog("rank-" + std::to_string(ranks->rank()), sysone::LogLevel::kInfo);
  // A group of one does no sums: its test would be none.
  sysone::Run(*ranks, argv[2]);
  ranks->Finish();
  return 0;
}
