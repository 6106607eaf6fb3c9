// SPDX-License-Identifier: Apache-2.0
#include "base/node_plan.h"

#include "base/log.h"

namespace sysone {

std::vector<std::string> NodeFlags(const LaunchPlace& place) {
  if (place.world < 2 || place.nodes != place.world || place.local_world != 1) return {};
  std::vector<std::string> flags = {Format("--nnodes=%d", place.nodes),
                                    Format("--node-rank=%d", place.rank)};
  if (!place.master_address.empty()) flags.push_back("--master-addr=" + place.master_address);
  return flags;
}

Status PlanNodes(ServeOptions& options) {
  const int nodes = options.nnodes;
  const int node = options.node_rank;
  if (node >= nodes)
    return Error(Code::kInvalidArgument, "--node-rank %d is not below --nnodes %d", node, nodes);
  if (nodes == 1) return {};
  if (node == 0 && options.headless)
    return Error(Code::kInvalidArgument, "--headless: node 0 of --nnodes %d serves the clients",
                 nodes);
  if (options.data_parallel_size_local < 0) {
    // The first nodes take what does not divide.
    const int groups = options.data_parallel_size;
    if (groups < nodes)
      return Error(
          Code::kInvalidArgument,
          "--data-parallel-size %d leaves nodes of --nnodes %d without a worker group; for one "
          "group over several machines use --mpi-hosts",
          groups, nodes);
    options.data_parallel_size_local = groups / nodes + (node < groups % nodes ? 1 : 0);
  }
  options.data_parallel_rpc_port = options.master_port;
  if (node == 0) return {};
  options.headless = true;
  if (!options.router_address.empty()) return {};
  if (options.master_addr.empty())
    return Error(Code::kInvalidArgument,
                 "--nnodes %d and --node-rank %d need --master-addr, where node 0 is", nodes, node);
  options.router_address = Format("tcp://%s:%d", options.master_addr.c_str(), options.master_port);
  return {};
}

}  // namespace sysone
