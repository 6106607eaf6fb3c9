// The reference backend, but one that pads passes to a few sizes and has choices to make: for tests of what is done before the
// first client. A choice is the number of rows of a pass that was run; tuning makes it a tuned one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/backend.h"
#include "tests/bench/forwarding_backend.h"

namespace sysone {

class ChoosingBackend final : public ForwardingBackend {
 public:
  ChoosingBackend() : ChoosingBackend(MakeReference()) {}

  // What happened, in order: {rows, reads} of each pass, negative while tuning.
  std::vector<std::pair<int32_t, int32_t>> passes;
  std::string driver = "13.0";
  bool refuses = false;  // choices of others

  int32_t PassRows(int32_t count) const override {
    for (const int32_t rows : {4, 8, 16})
      if (count <= rows) return rows;
    return count;
  }
  int32_t PassReads(int32_t count) const override { return count <= 1 ? 1 : (count + 1) / 2 * 2; }
  int32_t PassLabels(int32_t count, int32_t reads) const override {
    return std::max(count, 4 * reads);
  }
  void RunPass(const PassInputs& inputs, const PassResults&, RecordedPasses*,
               const std::function<void()>& operations) override {
    const auto rows = static_cast<int32_t>(inputs.tokens.size());
    const auto reads = static_cast<int32_t>(inputs.read_rows.size());
    passes.emplace_back(tuning_ ? -rows : rows, reads);
    auto& tuned = tuned_[rows];
    tuned = tuned || tuning_;
    operations();
  }

  ChoiceOrigin OriginOfChoices() const override { return {"a device", {{"driver", driver}}}; }
  std::vector<std::byte> ExportChoices() const override {
    std::vector<std::byte> bytes;
    for (const auto& [rows, tuned] : tuned_) {
      bytes.push_back(static_cast<std::byte>(rows));
      bytes.push_back(static_cast<std::byte>(tuned));
    }
    return bytes;
  }
  Status ImportChoices(std::span<const std::byte> bytes) override {
    if (refuses) return Error(Code::kUnsupported, "not mine");
    for (size_t i = 0; i < bytes.size(); i += 2)
      tuned_[static_cast<int32_t>(bytes[i])] = bytes[i + 1] == std::byte{1};
    return {};
  }
  void SetTuning(bool on) override { tuning_ = on; }
  std::string DescribeChoices() const override {
    const auto tuned =
        std::ranges::count_if(tuned_, [](const auto& entry) { return entry.second; });
    return std::to_string(tuned_.size()) + " products, " + std::to_string(tuned) + " tuned";
  }

 private:
  explicit ChoosingBackend(std::unique_ptr<Backend> reference)
      : ForwardingBackend(*reference), reference_(std::move(reference)) {}

  static std::unique_ptr<Backend> MakeReference() {
    BackendOptions options;
    options.name = "reference";
    options.dtype = "float32";
    options.threads = 1;
    auto made = MakeBackend(options);
    SYSONE_CHECK(made.ok(), "%s", made.status().message().c_str());
    return *std::move(made);
  }

  const std::unique_ptr<Backend> reference_;
  std::map<int32_t, bool> tuned_;  // by rows
  bool tuning_ = false;
};

}  // namespace sysone
