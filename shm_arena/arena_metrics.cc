// Gauges of the instance for /metrics: slots, groups, processes. Counters and histograms are in
// counters.cc.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "shm_arena/arena.h"

namespace sysone {
namespace {

// Lines of one gauge, with labels `key="value"`.
class Gauge {
 public:
  Gauge(std::string& out, const char* name, const char* help) : out_(out), name_(name) {
    out_.append("# HELP ")
        .append(name)
        .append(" ")
        .append(help)
        .append("\n# TYPE ")
        .append(name)
        .append(" gauge\n");
  }
  void Line(const std::string& labels, double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.17g", value);
    out_.append(name_).append("{").append(labels).append("} ").append(text).append("\n");
  }

 private:
  std::string& out_;
  const char* name_;
};

std::string Label(const char* key, const std::string& value) {
  return std::string(key) + "=\"" + value + "\"";
}

void AppendSlotGauges(std::string& out, const SlotPool& slots) {
  std::vector<ClassUsage> usage;
  for (uint32_t c = 0; c < slots.class_count(); ++c) usage.push_back(slots.Usage(c));
  const auto lines = [&](const char* name, const char* help, uint32_t ClassUsage::*field) {
    Gauge gauge(out, name, help);
    for (const ClassUsage& u : usage)
      gauge.Line(Label("block_bytes", std::to_string(u.block_bytes)), u.*field);
  };
  lines("sysone_slots", "Slots of the arena, by block size.", &ClassUsage::slots);
  lines("sysone_slots_in_use", "Slots that hold a job now.", &ClassUsage::in_use);
  lines("sysone_slots_high_water", "Most slots in use that any scan saw.", &ClassUsage::high_water);
}

void AppendGroupGauges(std::string& out, const BoardSnapshot& board) {
  const auto lines = [&](const char* name, const char* help, auto value) {
    Gauge gauge(out, name, help);
    for (uint32_t g = 0; g < board.group_count; ++g) {
      if (board.groups[g].state == GroupState::kAbsent) continue;
      gauge.Line(Label("group", std::to_string(g)), static_cast<double>(value(board.groups[g])));
    }
  };
  lines("sysone_group_ready", "1 when the group takes jobs.",
        [](const GroupLoad& g) { return g.state == GroupState::kReady ? 1 : 0; });
  lines("sysone_group_starts", "How often the group was started.",
        [](const GroupLoad& g) { return g.incarnation; });
  lines("sysone_group_outstanding_jobs", "Jobs waiting or running.",
        [](const GroupLoad& g) { return g.outstanding_jobs; });
  lines("sysone_group_outstanding_tokens", "Tokens waiting or running.",
        [](const GroupLoad& g) { return g.outstanding_tokens; });
  lines("sysone_group_tokens_per_second",
        "Moving rate while busy; 0: not known, after a start or an idle minute.",
        [](const GroupLoad& g) { return g.rate.tokens_per_second; });
  Gauge age(out, "sysone_group_line_age_seconds",
            "Groups of other hosts: time since the group was last heard of.");
  for (uint32_t g = 0; g < board.group_count; ++g)
    if (board.groups[g].mirrored_us != 0)
      age.Line(Label("group", std::to_string(g)),
               static_cast<double>(MonotonicUs() - board.groups[g].mirrored_us) * 1e-6);
  lines("sysone_kv_cache_usage_perc",
        "Share of the key-value memory that unfinished jobs use, 0 to 1.",
        [](const GroupLoad& g) { return g.kv.blocks_in_use / std::max(1.0, 1.0 * g.kv.blocks); });
  lines("sysone_kv_cache_blocks",
        "Blocks of key-value memory that hold something, also for requests to come.",
        [](const GroupLoad& g) { return g.kv.blocks_held; });
  lines("sysone_kv_cache_bytes", "The same in bytes.",
        [](const GroupLoad& g) { return g.kv.blocks_held * g.kv.block_bytes; });
  lines("sysone_kv_cache_max_bytes", "All key-value memory.",
        [](const GroupLoad& g) { return g.kv.blocks * g.kv.block_bytes; });
  lines("sysone_group_batches", "Forward passes since the instance started.",
        [](const GroupLoad& g) { return g.total_batches; });
  lines("sysone_group_jobs", "Jobs answered since the instance started.",
        [](const GroupLoad& g) { return g.total_jobs; });
  lines("sysone_group_tokens", "Tokens computed since the instance started.",
        [](const GroupLoad& g) { return g.total_tokens; });
  lines("sysone_group_busy_seconds", "Time spent in forward passes.",
        [](const GroupLoad& g) { return static_cast<double>(g.total_busy_us) * 1e-6; });
}

void AppendServerGauges(std::string& out, const ProcessTable& table) {
  const auto lines = [&](const char* name, const char* help, uint32_t ProcessInfo::*field) {
    Gauge gauge(out, name, help);
    for (uint32_t i = 0; i < table.lines_used(); ++i) {
      const std::optional<ProcessInfo> info = table.Read(static_cast<ProcessId>(i));
      if (!info || info->role != ProcessRole::kApiServer || info->phase == ProcessPhase::kExited)
        continue;
      gauge.Line(Label("server", std::to_string(info->role_index)), (*info).*field);
    }
  };
  lines("sysone_server_open_connections", "Open connections of an API server.",
        &ProcessInfo::open_connections);
  lines("sysone_server_requests_in_flight", "Requests that an API server is answering.",
        &ProcessInfo::in_flight);
}

}  // namespace

void Arena::AppendMetricsText(std::string& out) {
  metrics().AppendPrometheusText(out);
  AppendSlotGauges(out, *slots_);
  AppendGroupGauges(out, board().Snapshot());
  AppendServerGauges(out, processes());
}

}  // namespace sysone
