// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul_choices.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace sysone {
namespace {

constexpr uint64_t kMagic = 0x316d6d656e6f7379;  // "ysonemm1": the 1 is the layout's number
constexpr float kNoise = 1.02f;

struct Head {
  uint64_t magic;
  uint64_t library_version;
  uint32_t encoding;
  uint32_t batch_invariant;
  uint64_t count;
};

struct Entry {
  int64_t out_cols, rows, depth;
  uint32_t bias, tuned;
  std::array<std::byte, 64> algorithm;
};
static_assert(sizeof(Head) == 32 && sizeof(Entry) == 96, "no padding, which would be random bytes");

bool Valid(const Entry& entry) {
  return entry.out_cols > 0 && entry.rows >= 0 && entry.depth > 0 && entry.bias <= 1 &&
         entry.tuned <= 1;
}

}  // namespace

const ProductChoice* MatMulChoices::Find(const ProductShape& shape) const {
  const auto found = choices_.find(shape);
  return found == choices_.end() ? nullptr : &found->second;
}

std::vector<std::byte> MatMulChoices::Export() const {
  std::vector<std::byte> bytes(sizeof(Head) + choices_.size() * sizeof(Entry));
  std::byte* at = bytes.data();
  const auto append = [&at](const auto& value) {
    std::memcpy(at, &value, sizeof value);
    at += sizeof value;
  };
  append(Head{kMagic, origin_.library_version, static_cast<uint32_t>(origin_.encoding),
              origin_.batch_invariant, choices_.size()});
  for (const auto& [shape, choice] : choices_)
    append(
        Entry{shape.out_cols, shape.rows, shape.depth, shape.bias, choice.tuned, choice.algorithm});
  return bytes;
}

Result<MatMulChoices> MatMulChoices::Parse(std::span<const std::byte> bytes) {
  Head head;
  if (bytes.size() < sizeof head) return Error(Code::kCorrupt, "choices of products: cut short");
  std::memcpy(&head, bytes.data(), sizeof head);
  bytes = bytes.subspan(sizeof head);
  if (head.magic != kMagic || head.batch_invariant > 1 ||
      head.encoding > static_cast<uint32_t>(Encoding::kFp8))
    return Error(Code::kCorrupt, "choices of products: something else, or of another version");
  if (bytes.size() % sizeof(Entry) != 0 || bytes.size() / sizeof(Entry) != head.count)
    return Error(Code::kCorrupt, "choices of products: %zu bytes do not hold %llu of them",
                 bytes.size(), static_cast<unsigned long long>(head.count));
  MatMulChoices choices(
      {head.library_version, static_cast<Encoding>(head.encoding), head.batch_invariant == 1});
  for (; !bytes.empty(); bytes = bytes.subspan(sizeof(Entry))) {
    Entry entry;
    std::memcpy(&entry, bytes.data(), sizeof entry);
    if (!Valid(entry)) return Error(Code::kCorrupt, "choices of products: a shape that is none");
    choices.Set({entry.out_cols, entry.rows, entry.depth, entry.bias == 1},
                {entry.algorithm, entry.tuned == 1});
  }
  return choices;
}

int FastestCandidate(std::span<const float> times) {
  float least = std::numeric_limits<float>::infinity();
  for (const float time : times)
    if (time < least) least = time;
  for (size_t i = 0; i < times.size(); ++i)
    if (std::isfinite(times[i]) && times[i] <= least * kNoise) return static_cast<int>(i);
  return -1;
}

}  // namespace sysone
