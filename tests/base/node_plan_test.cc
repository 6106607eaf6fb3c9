// SPDX-License-Identifier: Apache-2.0
#include "base/node_plan.h"

#include <gtest/gtest.h>

namespace sysone {
namespace {

using Args = std::vector<std::string>;

LaunchPlace Place(int32_t rank, int32_t world, int32_t local_world, int32_t nodes) {
  LaunchPlace place;
  place.source = LaunchSource::kSlurm;
  place.rank = rank;
  place.world = world;
  place.local_world = local_world;
  place.nodes = nodes;
  place.master_address = "node0";
  return place;
}

ServeOptions Parsed(const Args& args) {
  const auto parsed = ParseServeOptions("sysone serve", args);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return parsed.ok() ? parsed->options : ServeOptions();
}

std::string ErrorOf(const Args& args) {
  return ParseServeOptions("sysone serve", args).status().message();
}

TEST(NodeFlags, AreForOneProcessOnEachOfSeveralMachines) {
  EXPECT_EQ(NodeFlags(Place(1, 3, 1, 3)),
            (Args{"--nnodes=3", "--node-rank=1", "--master-addr=node0"}));
  EXPECT_EQ(NodeFlags(Place(0, 1, 1, 2)), Args{}) << "a batch script of a job with two machines";
  EXPECT_EQ(NodeFlags(Place(1, 2, 2, 1)), Args{}) << "two on one machine";
  EXPECT_EQ(NodeFlags(Place(1, 4, 2, 2)), Args{});
  LaunchPlace unknown = Place(1, 2, 1, 2);
  unknown.master_address = "";
  EXPECT_EQ(NodeFlags(unknown), (Args{"--nnodes=2", "--node-rank=1"}));
}

TEST(PlanNodes, TheFirstServesAndTheOthersLendItTheirShareOfTheGroups) {
  const Args all = {"-n", "3", "-dp", "7", "--master-addr", "a", "--allow-unauthenticated-tcp"};
  const auto node = [&](int rank) {
    Args args = all;
    args.insert(args.end(), {"--node-rank", std::to_string(rank)});
    return Parsed(args);
  };
  const ServeOptions first = node(0);
  EXPECT_FALSE(first.headless);
  EXPECT_EQ(LocalGroups(first), 3);
  EXPECT_EQ(RemoteGroups(first), 4);
  EXPECT_EQ(first.data_parallel_rpc_port, 29501);
  EXPECT_EQ(first.router_address, "");
  for (const int rank : {1, 2}) {
    const ServeOptions other = node(rank);
    EXPECT_TRUE(other.headless);
    EXPECT_EQ(LocalGroups(other), 2);
    EXPECT_EQ(other.router_address, "tcp://a:29501");
  }
}

TEST(PlanNodes, VllmsOwnCommandLinesMeanTheSame) {
  // Node 1 of two, as vLLM's documentation starts it.
  const ServeOptions other = Parsed({"model", "-dp", "4", "-dpl", "2", "--nnodes", "2",
                                     "--node-rank", "1", "--master-addr", "a", "--master-port",
                                     "1234", "--headless", "--allow-unauthenticated-tcp"});
  EXPECT_TRUE(other.headless);
  EXPECT_EQ(LocalGroups(other), 2);
  EXPECT_EQ(other.router_address, "tcp://a:1234");
}

TEST(PlanNodes, OneNodeChangesNothing) {
  const ServeOptions alone = Parsed({"-dp", "2"});
  EXPECT_EQ(alone.data_parallel_rpc_port, 29550);
  EXPECT_EQ(alone.data_parallel_size_local, -1);
  EXPECT_FALSE(alone.headless);
}

TEST(PlanNodes, ContradictionsAreNamed) {
  EXPECT_EQ(ErrorOf({"--node-rank", "1"}), "--node-rank 1 is not below --nnodes 1");
  EXPECT_EQ(ErrorOf({"-n", "2", "-dp", "2", "--headless"}),
            "--headless: node 0 of --nnodes 2 serves the clients");
  EXPECT_NE(ErrorOf({"-n", "2"}).find("for one group over several machines use --mpi-hosts"),
            std::string::npos);
  EXPECT_EQ(ErrorOf({"-n", "2", "-r", "1", "-dp", "2"}),
            "--nnodes 2 and --node-rank 1 need --master-addr, where node 0 is");
  EXPECT_NE(ErrorOf({"-n", "2", "-dp", "2"}).find("need keys"), std::string::npos);
}

}  // namespace
}  // namespace sysone
