// Counters, histograms and their text.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/counters.h"

#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/shm_arena/test_arena.h"

namespace sysone {
namespace {

TEST(CountersTest, TheTablesNameEachCounterOnceInOrder) {
  std::set<std::string> seen;
  std::set<std::string> names;
  std::string last;
  for (uint32_t i = 0; i < kCounterCount; ++i) {
    EXPECT_EQ(kCounterTable[i].counter, static_cast<Counter>(i));
    const std::string name = kCounterTable[i].name;
    EXPECT_EQ(name.rfind("sysone_", 0), 0u) << name;
    EXPECT_TRUE(name.ends_with("_total")) << name;
    EXPECT_TRUE(seen.insert(name + "{" + kCounterTable[i].labels).second) << name;
    EXPECT_TRUE(name == last || names.insert(name).second) << name << " stands in two places";
    last = name;
  }
  for (uint32_t i = 0; i < kHistogramCount; ++i)
    EXPECT_EQ(kHistogramTable[i].histogram, static_cast<Histogram>(i));
}

TEST(CountersTest, EveryHttpStatusHasACounter) {
  EXPECT_EQ(CounterForHttpStatus(200), Counter::kRequests200);
  EXPECT_EQ(CounterForHttpStatus(422), Counter::kRequests422);
  EXPECT_EQ(CounterForHttpStatus(504), Counter::kRequests504);
  for (const int status : {0, 20, 2000, 302, 599, -1})
    EXPECT_EQ(CounterForHttpStatus(status), Counter::kRequestsOther);
}

TEST(CountersTest, CountsOfAllProcessesAreSummedAndOutliveThem) {
  Arena arena = Arena::InMemory(SmallConfig());
  MetricsRegion* region = reinterpret_cast<MetricsRegion*>(
      reinterpret_cast<std::byte*>(arena.header()) + ArenaRegions::kMetrics);
  for (uint32_t process = 0; process < 20; ++process) {
    Metrics metrics(region, static_cast<ProcessId>(process));
    metrics.Add(Counter::kPromptTokens, 10);
    metrics.Observe(Histogram::kQueueTime, 100);  // a bound belongs to its bucket
    metrics.Observe(Histogram::kQueueTime, 101);
    metrics.Observe(Histogram::kQueueTime, 99'000'000);
  }
  const Metrics metrics = arena.metrics();
  EXPECT_EQ(metrics.Total(Counter::kPromptTokens), 200u);
  const Metrics::HistogramTotals totals = metrics.Total(Histogram::kQueueTime);
  EXPECT_EQ(totals.cumulative[0], 20u);
  EXPECT_EQ(totals.cumulative[1], 40u);
  EXPECT_EQ(totals.cumulative[kBucketCount - 2], 40u);
  EXPECT_EQ(totals.cumulative[kBucketCount - 1], 60u);
  EXPECT_EQ(totals.sum_us, 20u * (100 + 101 + 99'000'000));
}

TEST(MetricsTextTest, EveryLineIsPrometheusTextAndEverySeriesIsThereFromTheStart) {
  Arena arena = Arena::InMemory(SmallConfig());
  ASSERT_TRUE(arena.Register(ProcessRole::kApiServer, 0).ok());
  arena.board().StartGroup(kGroup1);
  arena.metrics().Add(Counter::kRequests200, 3);
  arena.metrics().Observe(Histogram::kRequestLatency, 1500);
  const SlotHandle slot = *arena.slots().Claim(arena.self(), 1);
  std::string text;
  arena.AppendMetricsText(text);
  arena.slots().Release(slot);

  const std::regex line_form(
      R"((# (HELP|TYPE) sysone_[a-z0-9_]+ .+)|(sysone_[a-z0-9_]+(\{[a-z_]+="[^"]*"\})? [-+0-9.e]+))");
  std::map<std::string, std::string> series;
  std::set<std::string> types;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(std::regex_match(line, line_form)) << line;
    EXPECT_TRUE(line.rfind("# TYPE ", 0) != 0 || types.insert(line).second) << line << " twice";
    if (line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    EXPECT_TRUE(series.insert({line.substr(0, space), line.substr(space + 1)}).second)
        << line << " twice";
  }
  EXPECT_EQ(series["sysone_requests_total{code=\"200\"}"], "3");
  EXPECT_EQ(series["sysone_requests_total{code=\"504\"}"], "0");
  EXPECT_EQ(series["sysone_e2e_request_latency_seconds_bucket{le=\"0.001\"}"], "0");
  EXPECT_EQ(series["sysone_e2e_request_latency_seconds_bucket{le=\"0.0025\"}"], "1");
  EXPECT_EQ(series["sysone_e2e_request_latency_seconds_bucket{le=\"+Inf\"}"], "1");
  EXPECT_EQ(series["sysone_e2e_request_latency_seconds_sum"], "0.0015");
  EXPECT_EQ(series["sysone_e2e_request_latency_seconds_count"], "1");
  EXPECT_EQ(series["sysone_slots{block_bytes=\"4096\"}"], "4");
  EXPECT_EQ(series["sysone_slots_in_use{block_bytes=\"4096\"}"], "1");
  EXPECT_EQ(series["sysone_slots_high_water{block_bytes=\"4096\"}"], "1");
  EXPECT_EQ(series["sysone_group_ready{group=\"1\"}"], "0");
  EXPECT_EQ(series["sysone_group_starts{group=\"1\"}"], "1");
  EXPECT_FALSE(series.contains("sysone_group_ready{group=\"0\"}"));
  EXPECT_EQ(series["sysone_server_open_connections{server=\"0\"}"], "0");
}

}  // namespace
}  // namespace sysone
