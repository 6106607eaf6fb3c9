// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/collective.h"

#include "base/log.h"

namespace sysone {
namespace {

class SoloCollective final : public Collective {
 public:
  SoloCollective() : Collective(0, 1) {}
  std::string Describe() const override { return "one rank"; }
  void AllReduceSum(std::span<float>) override {}
  void Broadcast(std::vector<std::byte>&) override {}
  void AllGather(uint64_t own, std::span<uint64_t> all) override { all[0] = own; }
  void Finish() override {}
};

}  // namespace

std::unique_ptr<Collective> MakeSoloCollective() { return std::make_unique<SoloCollective>(); }

void CheckAgreement(Collective& collective, uint64_t value, const char* what) {
  std::vector<uint64_t> all(static_cast<size_t>(collective.size()));
  collective.AllGather(value, all);
  std::string different;
  for (size_t r = 1; r < all.size(); ++r)
    if (all[r] != all[0]) different += Format("%s%zu", different.empty() ? "" : ", ", r);
  SYSONE_CHECK(different.empty(), "rank %s and rank 0 differ in %s", different.c_str(), what);
}

}  // namespace sysone
