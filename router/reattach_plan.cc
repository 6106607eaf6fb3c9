// SPDX-License-Identifier: Apache-2.0
#include "router/reattach_plan.h"

#include <algorithm>

namespace sysone {

ReattachPlan PlanReattach(std::span<const ChildRecord> records,
                          const std::function<bool(ProcessIdentity)>& alive,
                          std::span<const SeenProcess> orphans,
                          std::span<const SeenProcess> registered) {
  ReattachPlan plan;
  for (const ChildRecord& record : records)
    plan.keep.push_back(record.process && alive(record.process));
  const auto belongs = [&](const SeenProcess& seen) {
    for (size_t i = 0; i < records.size(); ++i) {
      const ProcessIdentity kept = records[i].process;
      if (plan.keep[i] && (kept == seen.identity || kept.pid() == seen.parent)) return true;
    }
    return false;
  };
  for (const auto& processes : {orphans, registered}) {
    for (const SeenProcess& seen : processes) {
      const bool known =
          std::find(plan.strays.begin(), plan.strays.end(), seen.identity) != plan.strays.end();
      if (!known && !belongs(seen)) plan.strays.push_back(seen.identity);
    }
  }
  return plan;
}

}  // namespace sysone
