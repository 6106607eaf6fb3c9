// Sizes, writing and checking of a job's bytes.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/job_layout.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace sysone {
namespace {

constexpr uint64_t Align8(uint64_t bytes) { return (bytes + 7) / 8 * 8; }

// Where the parts of a job are; counts up to 2^31 cannot overflow 64 bits.
struct Offsets {
  uint64_t sequences, labels, tokens, results, logits, end;
};

Offsets OffsetsOf(uint64_t sequences, uint64_t labels, uint64_t tokens) {
  Offsets at;
  at.sequences = Align8(sizeof(JobHeader));
  at.labels = Align8(at.sequences + sequences * sizeof(JobSequence));
  at.tokens = Align8(at.labels + labels * sizeof(int32_t));
  at.results = Align8(at.tokens + tokens * sizeof(int32_t));
  at.logits = Align8(at.results + sequences * sizeof(SequenceResult));
  at.end = Align8(at.logits + labels * sizeof(float));
  return at;
}

Offsets OffsetsOf(const JobShape& shape) {
  return OffsetsOf(
      static_cast<uint64_t>(shape.sequence_count), static_cast<uint64_t>(shape.label_count),
      static_cast<uint64_t>(shape.prefix_tokens) + static_cast<uint64_t>(shape.suffix_tokens));
}

bool Aligned8(const std::byte* address) { return reinterpret_cast<uintptr_t>(address) % 8 == 0; }

Status CheckIds(std::span<const int32_t> ids, int32_t vocabulary, const char* what) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocabulary) {
      return Error(Code::kCorrupt, "job: %s %zu is %d, the vocabulary has %d", what, i, ids[i],
                   vocabulary);
    }
  }
  return {};
}

}  // namespace

size_t JobBytes(const JobShape& shape) { return OffsetsOf(shape).end; }

// ---- writing ----

Result<JobWriter> JobWriter::Begin(std::span<std::byte> payload, const JobShape& shape,
                                   uint32_t flags, uint64_t cache_salt_hash) {
  SYSONE_CHECK(Aligned8(payload.data()), "a payload starts 8-aligned");
  if (shape.sequence_count <= 0 || shape.prefix_tokens < 0 || shape.suffix_tokens < 0 ||
      shape.label_count < 0 || shape.prefix_tokens > INT32_MAX - shape.suffix_tokens) {
    return Error(Code::kInvalidArgument,
                 "job: %d sequences, %d + %d tokens and %d labels are no shape of a job",
                 shape.sequence_count, shape.prefix_tokens, shape.suffix_tokens, shape.label_count);
  }
  const Offsets at = OffsetsOf(shape);
  if (at.end > payload.size()) {
    return Error(Code::kTooLarge, "job: it needs %llu bytes, the payload has %zu",
                 static_cast<unsigned long long>(at.end), payload.size());
  }
  JobWriter writer(payload.data(), shape);
  *writer.header() = {
      .magic = 0,  // set by Finish: a half-written job is no job
      .flags = flags,
      .cache_salt_hash = cache_salt_hash,
      .prefix_tokens = shape.prefix_tokens,
      .token_count = shape.prefix_tokens + shape.suffix_tokens,
      .sequence_count = shape.sequence_count,
      .label_count = shape.label_count,
      .sequences_offset = at.sequences,
      .labels_offset = at.labels,
      .tokens_offset = at.tokens,
      .results_offset = at.results,
      .logits_offset = at.logits,
      .total_bytes = at.end,
      .queue_us = 0,
      .pass_us = 0,
  };
  writer.tokens_ = shape.prefix_tokens;
  return writer;
}

void JobWriter::SetPrefix(std::span<const int32_t> tokens) {
  SYSONE_CHECK(tokens.size() == static_cast<size_t>(shape_.prefix_tokens),
               "%zu prefix tokens, promised were %d", tokens.size(), shape_.prefix_tokens);
  std::copy(tokens.begin(), tokens.end(),
            reinterpret_cast<int32_t*>(base_ + header()->tokens_offset));
  prefix_set_ = true;
}

void JobWriter::AddSequence(std::span<const int32_t> suffix, std::span<const int32_t> labels) {
  const JobHeader& job = *header();
  SYSONE_CHECK(sequences_ < job.sequence_count, "more than %d sequences", job.sequence_count);
  SYSONE_CHECK(suffix.size() <= static_cast<size_t>(job.token_count - tokens_),
               "more than %d tokens", job.token_count);
  SYSONE_CHECK(labels.size() <= static_cast<size_t>(job.label_count - labels_),
               "more than %d labels", job.label_count);
  SYSONE_CHECK(job.prefix_tokens > 0 || !suffix.empty(), "sequence %d has no token", sequences_);
  const auto suffix_count = static_cast<int32_t>(suffix.size());
  const auto label_count = static_cast<int32_t>(labels.size());
  std::copy(suffix.begin(), suffix.end(),
            reinterpret_cast<int32_t*>(base_ + job.tokens_offset) + tokens_);
  std::copy(labels.begin(), labels.end(),
            reinterpret_cast<int32_t*>(base_ + job.labels_offset) + labels_);
  reinterpret_cast<JobSequence*>(base_ + job.sequences_offset)[sequences_] = {tokens_, suffix_count,
                                                                              labels_, label_count};
  reinterpret_cast<SequenceResult*>(base_ + job.results_offset)[sequences_] = {0, 0, -1, 0};
  tokens_ += suffix_count;
  labels_ += label_count;
  ++sequences_;
}

size_t JobWriter::Finish() {
  JobHeader& job = *header();
  SYSONE_CHECK(prefix_set_ || job.prefix_tokens == 0, "the prefix was not set");
  SYSONE_CHECK(
      sequences_ == job.sequence_count && tokens_ == job.token_count && labels_ == job.label_count,
      "job filled with %d sequences, %d tokens, %d labels; promised were %d, %d, %d", sequences_,
      tokens_, labels_, job.sequence_count, job.token_count, job.label_count);
  job.magic = kJobMagic;
  return job.total_bytes;
}

// ---- reading ----

Result<JobView> JobView::Open(std::span<std::byte> payload, int32_t vocabulary) {
  SYSONE_CHECK(Aligned8(payload.data()), "a payload starts 8-aligned");
  if (payload.size() < sizeof(JobHeader))
    return Error(Code::kCorrupt, "job: %zu bytes are no job", payload.size());
  const JobHeader& job = *reinterpret_cast<const JobHeader*>(payload.data());
  if (job.magic != kJobMagic) return Error(Code::kCorrupt, "job: wrong magic %08x", job.magic);
  if (job.sequence_count <= 0 || job.token_count <= 0 || job.label_count < 0 ||
      job.prefix_tokens < 0 || job.prefix_tokens > job.token_count) {
    return Error(Code::kCorrupt,
                 "job: counts out of range (%d sequences, %d tokens, %d of them prefix, %d labels)",
                 job.sequence_count, job.token_count, job.prefix_tokens, job.label_count);
  }
  const Offsets at =
      OffsetsOf(static_cast<uint64_t>(job.sequence_count), static_cast<uint64_t>(job.label_count),
                static_cast<uint64_t>(job.token_count));
  if (job.sequences_offset != at.sequences || job.labels_offset != at.labels ||
      job.tokens_offset != at.tokens || job.results_offset != at.results ||
      job.logits_offset != at.logits || job.total_bytes != at.end) {
    return Error(Code::kCorrupt, "job: its offsets are not those of its counts");
  }
  if (at.end > payload.size()) {
    return Error(Code::kCorrupt, "job: total_bytes %llu, the payload has %zu",
                 static_cast<unsigned long long>(at.end), payload.size());
  }
  JobView view(payload.data(), at.sequences, at.labels, at.tokens, at.results, at.logits);
  view.prefix_tokens_ = job.prefix_tokens;
  view.token_count_ = job.token_count;
  view.sequence_count_ = job.sequence_count;
  view.label_count_ = job.label_count;
  SYSONE_RETURN_IF_ERROR(view.CheckSequences());
  SYSONE_RETURN_IF_ERROR(
      CheckIds({view.tokens_, static_cast<size_t>(job.token_count)}, vocabulary, "token"));
  SYSONE_RETURN_IF_ERROR(
      CheckIds({view.label_ids_, static_cast<size_t>(job.label_count)}, vocabulary, "label"));
  return view;
}

JobView::JobView(std::byte* base, uint64_t sequences, uint64_t labels, uint64_t tokens,
                 uint64_t results, uint64_t logits)
    : base_(base),
      sequences_(reinterpret_cast<const JobSequence*>(base + sequences)),
      label_ids_(reinterpret_cast<const int32_t*>(base + labels)),
      tokens_(reinterpret_cast<const int32_t*>(base + tokens)),
      results_(reinterpret_cast<SequenceResult*>(base + results)),
      logits_(reinterpret_cast<float*>(base + logits)) {}

// Suffixes and labels follow each other without gaps, so every range is inside and none overlap.
Status JobView::CheckSequences() const {
  int64_t token = prefix_tokens_;
  int64_t label = 0;
  for (int32_t i = 0; i < sequence_count_; ++i) {
    const JobSequence& sequence = sequences_[i];
    if (sequence.token_begin != token || sequence.token_count < 0 ||
        sequence.label_begin != label || sequence.label_count < 0 ||
        token + sequence.token_count > token_count_ ||
        label + sequence.label_count > label_count_ || prefix_tokens_ + sequence.token_count == 0) {
      return Error(
          Code::kCorrupt,
          "job: sequence %d has tokens %d + %d and labels %d + %d, expected from %lld and %lld", i,
          sequence.token_begin, sequence.token_count, sequence.label_begin, sequence.label_count,
          static_cast<long long>(token), static_cast<long long>(label));
    }
    token += sequence.token_count;
    label += sequence.label_count;
  }
  if (token != token_count_ || label != label_count_) {
    return Error(Code::kCorrupt,
                 "job: its sequences hold %lld tokens and %lld labels, the header tells %d and %d",
                 static_cast<long long>(token), static_cast<long long>(label), token_count_,
                 label_count_);
  }
  return {};
}

const JobSequence& JobView::sequence(int32_t index) const {
  SYSONE_CHECK(index >= 0 && index < sequence_count_, "sequence %d of %d", index, sequence_count_);
  return sequences_[index];
}

std::span<const int32_t> JobView::prefix() const {
  return {tokens_, static_cast<size_t>(prefix_tokens_)};
}

std::span<const int32_t> JobView::suffix(int32_t index) const {
  const JobSequence& read = sequence(index);
  return {tokens_ + read.token_begin, static_cast<size_t>(read.token_count)};
}

std::span<const int32_t> JobView::labels(int32_t index) const {
  const JobSequence& read = sequence(index);
  return {label_ids_ + read.label_begin, static_cast<size_t>(read.label_count)};
}

int32_t JobView::sequence_tokens(int32_t index) const {
  return prefix_tokens_ + sequence(index).token_count;
}

std::span<float> JobView::label_logits(int32_t index) const {
  const JobSequence& read = sequence(index);
  return {logits_ + read.label_begin, static_cast<size_t>(read.label_count)};
}

SequenceResult& JobView::result(int32_t index) const {
  SYSONE_CHECK(index >= 0 && index < sequence_count_, "sequence %d of %d", index, sequence_count_);
  return results_[index];
}

void JobView::SetTimes(int64_t queue_us, int64_t pass_us) const {
  header().queue_us = queue_us;
  header().pass_us = pass_us;
}

std::span<const std::byte> JobView::job_bytes() const {
  return {base_, static_cast<size_t>(header().results_offset)};
}

std::span<std::byte> JobView::result_bytes() const {
  return {base_ + header().results_offset,
          static_cast<size_t>(header().total_bytes - header().results_offset)};
}

Result<size_t> InlineJobBytes(std::span<const std::byte> job, size_t most) {
  JobHeader header;
  if (job.size() < sizeof header)
    return Error(Code::kCorrupt, "job: %zu bytes are no header", job.size());
  std::memcpy(&header, job.data(), sizeof header);
  if (header.results_offset != job.size() || header.total_bytes < job.size() ||
      header.total_bytes > most)
    return Error(Code::kCorrupt, "job: %zu bytes of %llu, total_bytes %llu of at most %zu",
                 job.size(), static_cast<unsigned long long>(header.results_offset),
                 static_cast<unsigned long long>(header.total_bytes), most);
  return static_cast<size_t>(header.total_bytes);
}

}  // namespace sysone
