// SPDX-License-Identifier: Apache-2.0
#include "worker/batch_message.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace sysone {
namespace {

constexpr uint32_t kMagic = 0x42315359;  // "YS1B"

struct Header {
  uint32_t magic;
  BatchKind kind;
  uint64_t number;
  uint32_t rows, read_rows, runs, spans;  // elements of each part
  uint32_t labels, states, state_floats, summarize_head;
};
static_assert(sizeof(Header) == 48 && std::is_trivially_copyable_v<Header>);
// Every element is a multiple of 4 bytes that needs no more than such an address.
static_assert(sizeof(AttentionRun) == 20 && alignof(AttentionRun) == 4 &&
              std::is_trivially_copyable_v<AttentionRun>);
static_assert(sizeof(KvSpan) == 8 && alignof(KvSpan) == 4 && std::is_trivially_copyable_v<KvSpan>);

template <class T>
uint32_t Count(std::span<T> part) {
  return static_cast<uint32_t>(part.size());
}

// Takes the parts off the front of a message, in their order.
class Parts {
 public:
  explicit Parts(std::span<const std::byte> bytes) : left_(bytes) {}

  template <class T>
  std::span<const T> Take(uint32_t count) {
    const size_t bytes = count * sizeof(T);
    if (bytes > left_.size()) {
      short_ = true;
      return {};
    }
    const auto* const data = reinterpret_cast<const T*>(left_.data());
    left_ = left_.subspan(bytes);
    return {data, count};
  }

  bool Fit() const { return !short_ && left_.empty(); }

 private:
  std::span<const std::byte> left_;
  bool short_ = false;
};

}  // namespace

void WriteBatch(const BatchMessage& message, std::vector<std::byte>& bytes) {
  const BatchRows& rows = message.rows;
  const PassPlan& plan = rows.plan;
  const BatchReads& reads = message.reads;
  const Header header{kMagic,
                      message.kind,
                      message.number,
                      Count(rows.tokens),
                      Count(rows.read_rows),
                      Count(plan.runs),
                      Count(plan.spans),
                      Count(reads.label_ids),
                      static_cast<uint32_t>(reads.states),
                      Count(message.states),
                      reads.summarize_head ? 1u : 0u};
  bytes.clear();
  const auto add = [&bytes](auto part) {
    const size_t before = bytes.size();
    bytes.resize(before + part.size_bytes());
    if (!part.empty()) std::memcpy(bytes.data() + before, part.data(), part.size_bytes());
  };
  add(std::span(&header, 1));
  add(rows.tokens);
  add(plan.positions);
  add(plan.kv_rows);
  add(rows.read_rows);
  add(plan.runs);
  add(plan.spans);
  add(reads.label_ids);
  add(reads.label_states);
  add(message.states);
}

Result<BatchMessage> ReadBatch(std::span<const std::byte> bytes) {
  Header header{};
  if (bytes.size() < sizeof header)
    return Error(Code::kCorrupt, "a batch of %zu bytes", bytes.size());
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kMagic || header.kind < BatchKind::kPass || header.kind > BatchKind::kEnd)
    return Error(Code::kCorrupt, "no batch: it begins with %08x", header.magic);
  Parts parts(bytes.subspan(sizeof header));
  BatchMessage message;
  message.kind = header.kind;
  message.number = header.number;
  message.rows.tokens = parts.Take<TokenId>(header.rows);
  message.rows.plan.positions = parts.Take<int32_t>(header.rows);
  message.rows.plan.kv_rows = parts.Take<int32_t>(header.rows);
  message.rows.read_rows = parts.Take<int32_t>(header.read_rows);
  message.rows.plan.runs = parts.Take<AttentionRun>(header.runs);
  message.rows.plan.spans = parts.Take<KvSpan>(header.spans);
  message.reads.label_ids = parts.Take<TokenId>(header.labels);
  message.reads.label_states = parts.Take<int32_t>(header.labels);
  message.states = parts.Take<float>(header.state_floats);
  message.reads.states = static_cast<int32_t>(header.states);
  message.reads.summarize_head = header.summarize_head != 0;
  if (!parts.Fit())
    return Error(Code::kCorrupt, "a batch of %zu bytes does not have its parts' sizes",
                 bytes.size());
  return message;
}

uint64_t BatchFingerprint(std::span<const std::byte> bytes) {
  // Eight bytes at a time: an odd multiplier, and a rotation that brings high bits back down.
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;
  uint64_t hash = bytes.size() * kMultiplier;
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
    hash = (hash ^ word) * kMultiplier;
    hash = hash << 29 | hash >> 35;
  }
  return hash;
}

}  // namespace sysone
