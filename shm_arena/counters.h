// Counters and histograms of the whole instance. They live in the arena, so that any API server can
// print /metrics for all processes, and a process that dies takes no counts with it. Sharded by
// process, summed when read.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "shm_arena/ids.h"

namespace sysone {

// Places in a shard; kCounterTable tells each one's name and labels.
enum class Counter : uint32_t {
  kRequests200,
  kRequests400,
  kRequests401,
  kRequests403,
  kRequests404,
  kRequests405,
  kRequests413,
  kRequests415,
  kRequests422,
  kRequests429,
  kRequests499,
  kRequests500,
  kRequests501,
  kRequests503,
  kRequests504,
  kRequestsOther,
  kDecisionsChoice,
  kDecisionsNoul,
  kDecisionsScore,
  kPromptTokens,
  kCachedTokens,
  kPrefixCacheQueries,
  kPrefixCacheHits,
  kKvEvictions,
  kAdmissionRejectedQueue,
  kAdmissionRejectedDeadline,
  kSlotsClaimed,
  kSlotsRefused,
  kSlotsReclaimed,
  kSlotsReturned,
  kSlotsAbandoned,
  kNoticesSent,
  kNoticesDropped,
  kSweptJobs,
  kWorkerRestarts,
  kApiServerRestarts,
  kRouterRestarts,
  kKeeperRestarts,
  kCount,
};

enum class Histogram : uint32_t {
  kRequestLatency,  // HTTP request in to response out
  kQueueTime,       // published to first pass
  kPassTime,        // first pass to result
  kTokenizeTime,    // template and tokenizer
  kCount,
};

inline constexpr uint32_t kCounterCount = static_cast<uint32_t>(Counter::kCount);
inline constexpr uint32_t kHistogramCount = static_cast<uint32_t>(Histogram::kCount);

// Upper bounds of the histogram buckets in microseconds; one more bucket takes what is above the
// last.
inline constexpr std::array<uint64_t, 18> kBucketBoundsUs = {
    100,     250,     500,     1'000,     2'500,     5'000,     10'000,     25'000,     50'000,
    100'000, 250'000, 500'000, 1'000'000, 2'500'000, 5'000'000, 10'000'000, 30'000'000, 60'000'000};
inline constexpr uint32_t kBucketCount = kBucketBoundsUs.size() + 1;

struct HistogramCells {
  std::atomic<uint64_t> buckets[kBucketCount];  // not cumulative
  std::atomic<uint64_t> sum_us;
};

// One shard: the processes whose id has this remainder add here, so that cores seldom share a line.
struct alignas(128) MetricShard {
  std::atomic<uint64_t> counters[kCounterCount];
  HistogramCells histograms[kHistogramCount];
};
inline constexpr uint32_t kMetricShards = 16;

// Process p writes shard p % kMetricShards.
struct MetricsRegion {
  MetricShard shards[kMetricShards];
};

struct CounterInfo {
  Counter counter;
  const char* name;    // Prometheus name
  const char* labels;  // `code="200"`, or empty
  const char* help;
};
// One line per counter, in the order of the enum; lines of one name stand together.
extern const std::array<CounterInfo, kCounterCount> kCounterTable;

// How a histogram is called in /metrics.
struct HistogramInfo {
  Histogram histogram;
  const char* name;
  const char* help;
};
extern const std::array<HistogramInfo, kHistogramCount> kHistogramTable;

// The request counter of an HTTP status; kRequestsOther for one that has no line of its own.
Counter CounterForHttpStatus(int status);

// A view for one process. Any thread; copies are cheap. All operations are relaxed: counts order
// nothing.
class Metrics {
 public:
  Metrics(MetricsRegion* region, ProcessId process)
      : region_(region), shard_(&region->shards[Index(process) % kMetricShards]) {}

  void Add(Counter counter, uint64_t amount = 1) {
    shard_->counters[static_cast<uint32_t>(counter)].fetch_add(amount, std::memory_order_relaxed);
  }
  void Observe(Histogram histogram, uint64_t value_us);

  // Sums over all processes.
  uint64_t Total(Counter counter) const;
  struct HistogramTotals {
    std::array<uint64_t, kBucketCount> cumulative{};  // last = number of observations
    uint64_t sum_us = 0;
  };
  HistogramTotals Total(Histogram histogram) const;

  // Appends every counter and histogram in the Prometheus text format; all are present from the
  // start, at zero.
  void AppendPrometheusText(std::string& out) const;

 private:
  MetricsRegion* region_;
  MetricShard* shard_;
};

}  // namespace sysone
