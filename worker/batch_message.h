// What rank 0 tells the other ranks of its group, once a step: a pass with what is read out in it, or that it is the end. All that
// they need is in it; they have no arena, no cache index and no queue.
//
//   header │ tokens │ positions │ kv rows │ read rows │ runs │ spans │ label ids │ label states │ states (floats)
//
// Which rows of the key-value stores a pass fills and sees is rank 0's choice (worker/kv_cache.h); every rank keeps its own
// heads' keys and values under the same numbers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "worker/pass.h"

namespace sysone {

// A pass, or nothing more to come.
enum class BatchKind : uint32_t { kPass = 1, kEnd = 2 };

// Views into a message.
struct BatchMessage {
  BatchKind kind = BatchKind::kEnd;
  uint64_t number = 0;  // of the step, from 1
  BatchRows rows;
  BatchReads reads;
  std::span<const float> states;  // [stored ones, hidden]: those of `reads` behind the rows' own
};

// Replaces `bytes` by the message.
void WriteBatch(const BatchMessage& message, std::vector<std::byte>& bytes);
// kCorrupt when the bytes are no such message. `bytes` begins at an address that is a multiple of 8, as any vector's.
Result<BatchMessage> ReadBatch(std::span<const std::byte> bytes);

// Of all bytes: equal messages have equal ones.
uint64_t BatchFingerprint(std::span<const std::byte> bytes);

}  // namespace sysone
