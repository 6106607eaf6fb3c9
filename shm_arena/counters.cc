// The tables of counters and histograms, and their text for /metrics.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/counters.h"

#include <cstdio>
#include <cstring>

#include "base/check.h"

namespace sysone {
namespace {

constexpr const char* kRequestsHelp = "HTTP requests answered, by status.";
constexpr const char* kDecisionsHelp = "Questions answered, by type.";
constexpr const char* kRejectedHelp = "Requests refused at admission, by reason.";
constexpr const char* kRestartsHelp = "Processes started again after they died, by role.";

void AppendHead(std::string& out, const char* name, const char* type, const char* help) {
  out.append("# HELP ").append(name).append(" ").append(help).append("\n# TYPE ");
  out.append(name).append(" ").append(type).append("\n");
}

void AppendSeconds(std::string& out, uint64_t microseconds) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", static_cast<double>(microseconds) * 1e-6);
  out += text;
}

}  // namespace

const std::array<CounterInfo, kCounterCount> kCounterTable = {{
    {Counter::kRequests200, "sysone_requests_total", "code=\"200\"", kRequestsHelp},
    {Counter::kRequests400, "sysone_requests_total", "code=\"400\"", kRequestsHelp},
    {Counter::kRequests401, "sysone_requests_total", "code=\"401\"", kRequestsHelp},
    {Counter::kRequests403, "sysone_requests_total", "code=\"403\"", kRequestsHelp},
    {Counter::kRequests404, "sysone_requests_total", "code=\"404\"", kRequestsHelp},
    {Counter::kRequests405, "sysone_requests_total", "code=\"405\"", kRequestsHelp},
    {Counter::kRequests413, "sysone_requests_total", "code=\"413\"", kRequestsHelp},
    {Counter::kRequests415, "sysone_requests_total", "code=\"415\"", kRequestsHelp},
    {Counter::kRequests422, "sysone_requests_total", "code=\"422\"", kRequestsHelp},
    {Counter::kRequests429, "sysone_requests_total", "code=\"429\"", kRequestsHelp},
    {Counter::kRequests499, "sysone_requests_total", "code=\"499\"", kRequestsHelp},
    {Counter::kRequests500, "sysone_requests_total", "code=\"500\"", kRequestsHelp},
    {Counter::kRequests501, "sysone_requests_total", "code=\"501\"", kRequestsHelp},
    {Counter::kRequests503, "sysone_requests_total", "code=\"503\"", kRequestsHelp},
    {Counter::kRequests504, "sysone_requests_total", "code=\"504\"", kRequestsHelp},
    {Counter::kRequestsOther, "sysone_requests_total", "code=\"other\"", kRequestsHelp},
    {Counter::kDecisionsChoice, "sysone_decisions_total", "type=\"choice\"", kDecisionsHelp},
    {Counter::kDecisionsNoul, "sysone_decisions_total", "type=\"noul\"", kDecisionsHelp},
    {Counter::kDecisionsScore, "sysone_decisions_total", "type=\"score\"", kDecisionsHelp},
    {Counter::kPromptTokens, "sysone_prompt_tokens_total", "",
     "Prompt tokens of accepted requests."},
    {Counter::kCachedTokens, "sysone_cached_tokens_total", "",
     "Prompt tokens of answered requests that were not computed again."},
    {Counter::kPrefixCacheQueries, "sysone_prefix_cache_queries_total", "",
     "Prompt tokens that workers looked up, each question's whole prompt."},
    {Counter::kPrefixCacheHits, "sysone_prefix_cache_hits_total", "",
     "Of these, tokens whose keys and values were there."},
    {Counter::kKvEvictions, "sysone_kv_cache_evictions_total", "",
     "Blocks of keys and values that made room for others."},
    {Counter::kAdmissionRejectedQueue, "sysone_admission_rejections_total", "reason=\"queue\"",
     kRejectedHelp},
    {Counter::kAdmissionRejectedDeadline, "sysone_admission_rejections_total",
     "reason=\"deadline\"", kRejectedHelp},
    {Counter::kSlotsClaimed, "sysone_slots_claimed_total", "", "Arena slots claimed for a job."},
    {Counter::kSlotsRefused, "sysone_slots_refused_total", "",
     "Jobs refused because no slot was free."},
    {Counter::kSlotsReclaimed, "sysone_slots_reclaimed_total", "",
     "Slots freed because their owner died."},
    {Counter::kSlotsReturned, "sysone_slots_returned_total", "",
     "Jobs taken back from a group that died."},
    {Counter::kSlotsAbandoned, "sysone_slots_abandoned_total", "",
     "Running jobs whose owner gave up or died."},
    {Counter::kNoticesSent, "sysone_notices_sent_total", "", "Doorbell notices handed to ZeroMQ."},
    {Counter::kNoticesDropped, "sysone_notices_dropped_total", "",
     "Notices dropped; the sweep finds their jobs."},
    {Counter::kSweptJobs, "sysone_swept_jobs_total", "",
     "Jobs that a sweep found before their notice."},
    {Counter::kWorkerRestarts, "sysone_restarts_total", "role=\"worker\"", kRestartsHelp},
    {Counter::kApiServerRestarts, "sysone_restarts_total", "role=\"api_server\"", kRestartsHelp},
    {Counter::kRouterRestarts, "sysone_restarts_total", "role=\"router\"", kRestartsHelp},
    {Counter::kKeeperRestarts, "sysone_restarts_total", "role=\"keeper\"", kRestartsHelp},
}};

const std::array<HistogramInfo, kHistogramCount> kHistogramTable = {{
    {Histogram::kRequestLatency, "sysone_e2e_request_latency_seconds",
     "Request in to response out."},
    {Histogram::kQueueTime, "sysone_request_queue_time_seconds",
     "Job published to its first pass."},
    {Histogram::kPassTime, "sysone_request_pass_time_seconds",
     "First pass of a job to its results."},
    {Histogram::kTokenizeTime, "sysone_request_tokenize_time_seconds",
     "Prompts and token ids of a request."},
}};

Counter CounterForHttpStatus(int status) {
  constexpr const char kPrefix[] = "code=\"";
  for (uint32_t i = 0; i < static_cast<uint32_t>(Counter::kRequestsOther); ++i) {
    char label[16];
    std::snprintf(label, sizeof label, "%s%d\"", kPrefix, status);
    if (std::strcmp(kCounterTable[i].labels, label) == 0) return kCounterTable[i].counter;
  }
  return Counter::kRequestsOther;
}

void Metrics::Observe(Histogram histogram, uint64_t value_us) {
  uint32_t bucket = 0;
  while (bucket < kBucketBoundsUs.size() && value_us > kBucketBoundsUs[bucket]) ++bucket;
  HistogramCells& cells = shard_->histograms[static_cast<uint32_t>(histogram)];
  cells.buckets[bucket].fetch_add(1, std::memory_order_relaxed);
  cells.sum_us.fetch_add(value_us, std::memory_order_relaxed);
}

uint64_t Metrics::Total(Counter counter) const {
  uint64_t total = 0;
  for (const MetricShard& shard : region_->shards) {
    total += shard.counters[static_cast<uint32_t>(counter)].load(std::memory_order_relaxed);
  }
  return total;
}

Metrics::HistogramTotals Metrics::Total(Histogram histogram) const {
  HistogramTotals totals;
  for (const MetricShard& shard : region_->shards) {
    const HistogramCells& cells = shard.histograms[static_cast<uint32_t>(histogram)];
    for (uint32_t b = 0; b < kBucketCount; ++b)
      totals.cumulative[b] += cells.buckets[b].load(std::memory_order_relaxed);
    totals.sum_us += cells.sum_us.load(std::memory_order_relaxed);
  }
  for (uint32_t b = 1; b < kBucketCount; ++b) totals.cumulative[b] += totals.cumulative[b - 1];
  return totals;
}

void Metrics::AppendPrometheusText(std::string& out) const {
  const char* last_name = "";
  for (uint32_t i = 0; i < kCounterCount; ++i) {
    const CounterInfo& info = kCounterTable[i];
    SYSONE_CHECK(info.counter == static_cast<Counter>(i),
                 "line %u of the counter table is out of order", i);
    if (std::strcmp(info.name, last_name) != 0) AppendHead(out, info.name, "counter", info.help);
    last_name = info.name;
    out += info.name;
    if (info.labels[0] != '\0') out.append("{").append(info.labels).append("}");
    out.append(" ").append(std::to_string(Total(info.counter))).append("\n");
  }
  for (uint32_t i = 0; i < kHistogramCount; ++i) {
    const HistogramInfo& info = kHistogramTable[i];
    const HistogramTotals totals = Total(static_cast<Histogram>(i));
    AppendHead(out, info.name, "histogram", info.help);
    for (uint32_t b = 0; b < kBucketCount; ++b) {
      out.append(info.name).append("_bucket{le=\"");
      if (b < kBucketBoundsUs.size()) {
        AppendSeconds(out, kBucketBoundsUs[b]);
      } else {
        out += "+Inf";
      }
      out.append("\"} ").append(std::to_string(totals.cumulative[b])).append("\n");
    }
    out.append(info.name).append("_sum ");
    AppendSeconds(out, totals.sum_us);
    out.append("\n").append(info.name).append("_count ");
    out.append(std::to_string(totals.cumulative[kBucketCount - 1])).append("\n");
  }
}

}  // namespace sysone
