// SPDX-License-Identifier: Apache-2.0
#include "api_server/request_reader.h"

#include <algorithm>

namespace sysone {
namespace {

// Room for a body is taken as its bytes come, in steps, not as announced: an announcement costs the
// sender nothing.
constexpr uint64_t kReserveBytes = 256u << 10;
// Empty lines that a client may send before a request line (RFC 9112 section 2.2).
constexpr size_t kMaxEmptyLines = 4;

// Assigning an empty string would keep the memory.
void Release(std::string& text) { std::string().swap(text); }

}  // namespace

RequestReader::State RequestReader::Feed(std::string_view bytes) {
  buffer_.append(bytes);
  return Advance();
}

RequestReader::State RequestReader::Next() {
  head_ = HttpHead();
  has_head_ = false;
  Release(body_);
  // An idle connection holds no memory but its own.
  if (buffer_.empty()) Release(buffer_);
  chunks_.reset();
  scanned_ = line_start_ = 0;
  state_ = State::kIdle;
  return Advance();
}

RequestReader::State RequestReader::Advance() {
  if (state_ == State::kIdle || state_ == State::kHead) FindHead();
  if (state_ == State::kBody) ReadBody();
  return state_;
}

RequestReader::State RequestReader::FindHead() {
  for (size_t empty = 0; empty < kMaxEmptyLines && buffer_.starts_with("\r\n"); ++empty) {
    buffer_.erase(0, 2);
    scanned_ = line_start_ = 0;
  }
  if (buffer_.empty()) return state_ = State::kIdle;
  state_ = State::kHead;
  while (true) {
    const size_t end = buffer_.find('\n', scanned_);
    const size_t known = std::min(end, buffer_.size());
    // Said at once, not when the time is over: no later byte can mend these.
    if (std::string_view(buffer_).substr(scanned_, known - scanned_).find('\0') !=
        std::string_view::npos)
      return Fail({400, "the head holds a NUL byte"});
    if (known > limits_.max_head_bytes) {
      // A head that is one endless line has no header yet: its target is what is too long.
      if (line_start_ == 0) return Fail({414, "the request line is too long"});
      return Fail(
          {431, "the head is longer than " + std::to_string(limits_.max_head_bytes) + " bytes"});
    }
    scanned_ = known;
    if (end == std::string::npos) return state_;
    if (end == 0 || buffer_[end - 1] != '\r')
      return Fail({400, "lines of the head must end in CR LF"});
    const bool empty_line = end - line_start_ == 1;
    scanned_ = line_start_ = end + 1;
    if (empty_line) break;
  }
  if (auto problem =
          ParseHttpHead(std::string_view(buffer_).substr(0, line_start_), limits_, head_))
    return Fail(std::move(*problem));
  has_head_ = true;
  buffer_.erase(0, line_start_);
  if (head_.content_length > limits_.max_request_bytes) return FailTooLarge();
  if (head_.chunked) chunks_.emplace(limits_.max_request_bytes);
  body_.reserve(static_cast<size_t>(std::min(head_.content_length, kReserveBytes)));
  return state_ = State::kBody;
}

RequestReader::State RequestReader::ReadBody() {
  if (!head_.chunked) {
    const size_t take =
        std::min(static_cast<size_t>(head_.content_length) - body_.size(), buffer_.size());
    body_.append(buffer_, 0, take);
    buffer_.erase(0, take);
    if (body_.size() == head_.content_length) state_ = State::kComplete;
    return state_;
  }
  size_t used = 0;
  const ChunkedBody::State state = chunks_->Feed(buffer_, body_, used);
  buffer_.erase(0, used);
  switch (state) {
    case ChunkedBody::State::kMore:
      return state_;
    case ChunkedBody::State::kDone:
      return state_ = State::kComplete;
    case ChunkedBody::State::kTooLarge:
      return FailTooLarge();
    case ChunkedBody::State::kMalformed:
      break;
  }
  return Fail({400, "the chunked body is malformed"});
}

RequestReader::State RequestReader::Fail(HttpProblem problem) {
  problem_ = std::move(problem);
  Release(buffer_);
  Release(body_);
  return state_ = State::kFailed;
}

RequestReader::State RequestReader::FailTooLarge() {
  return Fail({413, "the body is larger than " + std::to_string(limits_.max_request_bytes) +
                        " bytes; send a smaller request"});
}

}  // namespace sysone
