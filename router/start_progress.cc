// SPDX-License-Identifier: Apache-2.0
#include "router/start_progress.h"

#include <algorithm>

#include "base/log.h"

namespace sysone {
namespace {

constexpr uint32_t kStepPerMille = 200;  // a line every 20 %

std::string LoadingText(const ChildStatus& child) {
  if (child.role == ProcessRole::kApiServer) return "loading the tokenizer and the template";
  return Format("loading weights, %u %%", child.progress / 10);
}

}  // namespace

std::string ChildName(ProcessRole role, uint32_t index) {
  switch (role) {
    case ProcessRole::kWorker:
      return Format("worker %u", index);
    case ProcessRole::kStandIn:
      return "the stand-in for other hosts";
    case ProcessRole::kIntake:
      return Format("intake %u", index);
    default:
      return Format("API server %u", index);
  }
}

std::string Counted(int count, const char* noun) {
  return Format("%d %s%s", count, noun, count == 1 ? "" : "s");
}

std::string PartsText(const ServeOptions& options) {
  std::string text =
      options.headless ? "headless" : Counted(options.api_server_count, "API server");
  text += ", " + Counted(LocalGroups(options), "group");
  if (RemoteGroups(options) > 0)
    text += Format(", room for %d of other hosts", RemoteGroups(options));
  return text;
}

std::vector<std::string> StartProgress::Update(std::span<const ChildStatus> children) {
  shown_.resize(children.size());
  std::vector<std::string> lines;
  for (size_t i = 0; i < children.size(); ++i) {
    const ChildStatus& child = children[i];
    const bool loading = child.phase == ProcessPhase::kLoading;
    const uint32_t step = loading ? child.progress / kStepPerMille : 0;
    if (child.phase == shown_[i].phase && step <= shown_[i].step) continue;
    shown_[i] = {child.phase, step};
    const std::string name = ChildName(child.role, child.index);
    if (loading) lines.push_back(name + ": " + LoadingText(child));
    if (child.phase == ProcessPhase::kReady) lines.push_back(name + ": ready");
  }
  return lines;
}

bool AllReady(std::span<const ChildStatus> children) {
  return std::all_of(children.begin(), children.end(),
                     [](const ChildStatus& child) { return child.phase == ProcessPhase::kReady; });
}

std::string MissingText(std::span<const ChildStatus> children) {
  std::string text;
  for (const ChildStatus& child : children) {
    if (child.phase == ProcessPhase::kReady) continue;
    if (!text.empty()) text += ", ";
    text += ChildName(child.role, child.index) + " (";
    if (child.phase == ProcessPhase::kAbsent) {
      text += "not registered";
    } else if (child.phase == ProcessPhase::kLoading) {
      text += LoadingText(child);
    } else {
      text += ProcessPhaseName(child.phase);
    }
    text += ")";
  }
  return text;
}

}  // namespace sysone
