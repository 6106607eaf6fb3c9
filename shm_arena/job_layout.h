// What stands in a slot's payload: one job = a shared prefix of tokens, and one short branch
// (sequence) per question. Written in place by the API server, read in place by the worker, which
// writes the results behind the tokens.
//
//   JobHeader | JobSequence × sequences | int32 labels × label_count | int32 tokens × token_count |
//   results:    SequenceResult × sequences | float label_logits × label_count
//
//   tokens:  | shared prefix | suffix of sequence 0 | suffix of sequence 1 | …
//   The model reads prefix + suffix i for sequence i, and its last position answers.
// Every part starts 8-aligned. The same bytes travel inline over a socket where there is no shared
// memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/status.h"

namespace sysone {

inline constexpr uint32_t kJobMagic = 0x424f4a53;  // "SJOB"
inline constexpr uint32_t kJobWantsDiagnostics = 1u
                                                 << 0;  // log_sum_exp and argmax of every sequence

struct JobHeader {
  uint32_t magic;
  uint32_t flags;
  uint64_t cache_salt_hash;  // prefix cache entries are shared only between equal salts
  int32_t prefix_tokens;
  int32_t token_count;  // prefix and all suffixes
  int32_t sequence_count;
  int32_t label_count;        // of all sequences
  uint64_t sequences_offset;  // offsets from the start of the payload
  uint64_t labels_offset;
  uint64_t tokens_offset;
  uint64_t results_offset;
  uint64_t logits_offset;
  uint64_t total_bytes;
  // Written by the worker with the results.
  int64_t queue_us;  // publish → first pass
  int64_t pass_us;   // first pass → results
};
static_assert(sizeof(JobHeader) == 96 && std::is_trivially_copyable_v<JobHeader>);

struct JobSequence {
  int32_t token_begin;  // in tokens; suffixes follow each other
  int32_t token_count;  // of the suffix; 0 = the prefix itself is read
  int32_t label_begin;  // in labels
  int32_t label_count;  // 0 = only diagnostics are read
};
static_assert(sizeof(JobSequence) == 16 && std::is_trivially_copyable_v<JobSequence>);

struct SequenceResult {
  float log_sum_exp;      // over the whole vocabulary; with kJobWantsDiagnostics, else 0
  float argmax_logit;     // the same
  int32_t argmax_token;   // the same, else -1
  int32_t cached_tokens;  // of this sequence, not computed again
};
static_assert(sizeof(SequenceResult) == 16 && std::is_trivially_copyable_v<SequenceResult>);

struct JobShape {
  int32_t prefix_tokens = 0;
  int32_t suffix_tokens = 0;  // of all sequences together
  int32_t sequence_count = 0;
  int32_t label_count = 0;  // of all sequences together
};

// Bytes of payload for a job of this shape: what SlotPool::Claim is asked for.
size_t JobBytes(const JobShape& shape);

// Writes one job into a payload, front to back.
class JobWriter {
 public:
  // kTooLarge when the payload is smaller than JobBytes(shape); kInvalidArgument for a shape
  // without sequences or with negative counts. `payload` must be 8-aligned.
  static Result<JobWriter> Begin(std::span<std::byte> payload, const JobShape& shape,
                                 uint32_t flags, uint64_t cache_salt_hash);
  // Once, `shape.prefix_tokens` long.
  void SetPrefix(std::span<const int32_t> tokens);
  // In order, once per sequence.
  void AddSequence(std::span<const int32_t> suffix, std::span<const int32_t> labels);
  // Checks that the shape was filled exactly, and makes the job valid. Returns the used bytes.
  size_t Finish();

 private:
  JobWriter(std::byte* base, const JobShape& shape) : base_(base), shape_(shape) {}
  JobHeader* header() const { return reinterpret_cast<JobHeader*>(base_); }
  std::byte* base_;
  JobShape shape_;
  bool prefix_set_ = false;
  int32_t sequences_ = 0;
  int32_t tokens_ = 0;  // prefix included
  int32_t labels_ = 0;
};

// A job in a payload, checked once on opening: the worker reads tokens and writes results through
// it, the API server reads results. The bytes may not change under it, except the results.
class JobView {
 public:
  // kCorrupt, naming the field, when anything points outside `payload`, or a token or label id is
  // not in [0, vocabulary). `payload` must be 8-aligned.
  static Result<JobView> Open(std::span<std::byte> payload, int32_t vocabulary);

  uint32_t flags() const { return header().flags; }
  uint64_t cache_salt_hash() const { return header().cache_salt_hash; }
  int32_t token_count() const { return token_count_; }
  int32_t sequence_count() const { return sequence_count_; }
  int32_t label_count() const { return label_count_; }
  std::span<const int32_t> prefix() const;
  std::span<const int32_t> suffix(int32_t sequence) const;
  std::span<const int32_t> labels(int32_t sequence) const;
  // prefix + suffix
  int32_t sequence_tokens(int32_t sequence) const;

  // Results: the worker writes, then Complete; the API server reads after Wait said kDone.
  std::span<float> label_logits(int32_t sequence) const;  // in the order of labels(sequence)
  SequenceResult& result(int32_t sequence) const;
  void SetTimes(int64_t queue_us, int64_t pass_us) const;

  // For sending the job to another host, where it is read as if it had been written there: all that stands before the results,
  // and the results. [job_bytes | result_bytes] is the used part of the payload.
  std::span<const std::byte> job_bytes() const;
  std::span<std::byte> result_bytes() const;

  int64_t queue_us() const { return header().queue_us; }
  int64_t pass_us() const { return header().pass_us; }

 private:
  JobView(std::byte* base, uint64_t sequences, uint64_t labels, uint64_t tokens, uint64_t results,
          uint64_t logits);
  Status CheckSequences() const;
  JobHeader& header() const { return *reinterpret_cast<JobHeader*>(base_); }
  const JobSequence& sequence(int32_t index) const;

  std::byte* base_;
  const JobSequence* sequences_;
  const int32_t* label_ids_;
  const int32_t* tokens_;
  SequenceResult* results_;
  float* logits_;
  int32_t prefix_tokens_ = 0;
  int32_t token_count_ = 0;
  int32_t sequence_count_ = 0;
  int32_t label_count_ = 0;
};

// Bytes of payload that a job needs of which `job` is JobView::job_bytes: where it was sent to. kCorrupt when it is cut off or
// says that it needs more than `most`; only JobView::Open checks the rest.
Result<size_t> InlineJobBytes(std::span<const std::byte> job, size_t most);

}  // namespace sysone
