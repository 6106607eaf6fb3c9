// SPDX-License-Identifier: Apache-2.0
#include "router/rank_hosts.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <memory>
#include <sstream>

#include "base/log.h"

namespace sysone {
namespace {

constexpr int kMostRanks = 4096;

Result<RankHost> MakeHost(const std::string& name, const std::string& ranks) {
  RankHost host{name, 0};
  const auto [end, error] = std::from_chars(ranks.data(), ranks.data() + ranks.size(), host.ranks);
  if (name.empty() || error != std::errc() || end != ranks.data() + ranks.size() ||
      host.ranks < 1 || host.ranks > kMostRanks)
    return Error(Code::kInvalidArgument,
                 "'%s' with '%s' ranks is no host and a number from 1 to %d", name.c_str(),
                 ranks.c_str(), kMostRanks);
  return host;
}

// A machine that is named twice has the ranks of both.
void Add(RankHost host, std::vector<RankHost>& hosts) {
  const auto known = std::find_if(hosts.begin(), hosts.end(),
                                  [&](const RankHost& other) { return other.name == host.name; });
  if (known == hosts.end())
    hosts.push_back(std::move(host));
  else
    known->ranks += host.ranks;
}

// A socket can be bound to the addresses of this machine only.
bool IsThisMachine(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int fd = socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool bound = fd >= 0 && bind(fd, at->ai_addr, at->ai_addrlen) == 0;
    if (fd >= 0) close(fd);
    if (bound) return true;
  }
  return false;
}

Result<std::vector<RankHost>> ReadHosts(const ServeOptions& options) {
  if (!options.mpi_hosts.empty()) {
    auto hosts = ParseHostList(options.mpi_hosts);
    return hosts.ok() ? hosts : hosts.status().WithContext("--mpi-hosts");
  }
  std::ifstream file(options.mpi_hostfile);
  std::stringstream text;
  text << file.rdbuf();
  if (!file)
    return Error(Code::kNotFound, "--mpi-hostfile: cannot read '%s'", options.mpi_hostfile.c_str());
  auto hosts = ParseHostFile(text.str());
  return hosts.ok() ? hosts : hosts.status().WithContext("--mpi-hostfile " + options.mpi_hostfile);
}

}  // namespace

Result<std::vector<RankHost>> ParseHostList(const std::string& list) {
  std::vector<RankHost> hosts;
  std::istringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    const size_t colon = std::min(item.rfind(':'), item.size());
    SYSONE_ASSIGN_OR_RETURN(
        RankHost host,
        MakeHost(item.substr(0, colon), colon == item.size() ? "1" : item.substr(colon + 1)));
    Add(std::move(host), hosts);
  }
  return hosts;
}

Result<std::vector<RankHost>> ParseHostFile(const std::string& text) {
  std::vector<RankHost> hosts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name;
    std::string ranks = "1";
    words >> name;
    for (std::string word; words >> word;)
      if (word.starts_with("slots=")) ranks = word.substr(6);
    if (name.empty()) continue;
    SYSONE_ASSIGN_OR_RETURN(RankHost host, MakeHost(name, ranks));
    Add(std::move(host), hosts);
  }
  return hosts;
}

Result<std::vector<RankHost>> PlanRankHosts(const ServeOptions& options) {
  if (options.mpi_hosts.empty() && options.mpi_hostfile.empty()) return std::vector<RankHost>();
  SYSONE_ASSIGN_OR_RETURN(std::vector<RankHost> hosts, ReadHosts(options));
  int missing = options.tensor_parallel_size;
  std::vector<RankHost> used;
  for (const RankHost& host : hosts) {
    if (missing == 0) break;
    used.push_back({host.name, std::min(host.ranks, missing)});
    missing -= used.back().ranks;
  }
  if (missing > 0)
    return Error(Code::kInvalidArgument,
                 "the hosts have room for %d ranks (slots=), but --tensor-parallel-size is %d",
                 options.tensor_parallel_size - missing, options.tensor_parallel_size);
  if (!IsThisMachine(used[0].name))
    return Error(Code::kInvalidArgument,
                 "the first host, '%s', is not this machine; rank 0 of a group must be where "
                 "`sysone serve` runs",
                 used[0].name.c_str());
  return used;
}

}  // namespace sysone
