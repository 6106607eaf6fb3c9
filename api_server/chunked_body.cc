// SPDX-License-Identifier: Apache-2.0
#include "api_server/chunked_body.h"

#include <algorithm>

namespace sysone {
namespace {

// Size digits plus extensions, which nobody needs but proxies may add.
constexpr size_t kMaxLineBytes = 512;
// Trailer fields are read over and forgotten.
constexpr size_t kMaxTrailerBytes = 8192;
// 15 hexadecimal digits cannot overflow 64 bits.
constexpr size_t kMaxSizeDigits = 15;

// The size in front of a line; false when it has none or something other than an extension follows.
bool ParseSize(std::string_view line, uint64_t& size) {
  size = 0;
  size_t digits = 0;
  for (; digits < line.size(); ++digits) {
    const char c = line[digits];
    const int value = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (value < 0) break;
    if (digits == kMaxSizeDigits) return false;
    size = size * 16 + static_cast<uint64_t>(value);
  }
  if (digits == 0) return false;
  const size_t rest = line.find_first_not_of(" \t", digits);
  return digits == line.size() || (rest != std::string_view::npos && line[rest] == ';');
}

}  // namespace

ChunkedBody::State ChunkedBody::Feed(std::string_view input, std::string& body, size_t& used) {
  used = 0;
  while (used < input.size()) {
    if (part_ == Part::kData) {
      const size_t take = static_cast<size_t>(std::min<uint64_t>(chunk_left_, input.size() - used));
      body.append(input.substr(used, take));
      used += take;
      chunk_left_ -= take;
      if (chunk_left_ == 0) part_ = Part::kDataEnd;
      continue;
    }
    const State state = FeedLine(input[used++]);
    if (state != State::kMore) return state;
  }
  return State::kMore;
}

ChunkedBody::State ChunkedBody::FeedLine(char c) {
  if (carriage_) {
    if (c != '\n') return State::kMalformed;
    carriage_ = false;
    return EndLine();
  }
  if (c == '\r') {
    carriage_ = true;
    return State::kMore;
  }
  const bool control = static_cast<unsigned char>(c) < ' ' && c != '\t';
  if (control || part_ == Part::kDataEnd || line_.size() >= kMaxLineBytes) return State::kMalformed;
  if (part_ == Part::kTrailer && ++trailer_bytes_ > kMaxTrailerBytes) return State::kMalformed;
  line_ += c;
  return State::kMore;
}

ChunkedBody::State ChunkedBody::EndLine() {
  const std::string line = std::move(line_);
  line_.clear();
  switch (part_) {
    case Part::kSize:
      if (!ParseSize(line, chunk_left_)) return State::kMalformed;
      if (chunk_left_ > max_bytes_ - decoded_bytes_) return State::kTooLarge;
      decoded_bytes_ += static_cast<size_t>(chunk_left_);
      part_ = chunk_left_ == 0 ? Part::kTrailer : Part::kData;
      return State::kMore;
    case Part::kDataEnd:
      part_ = Part::kSize;
      return State::kMore;
    case Part::kTrailer:
      return line.empty() ? State::kDone : State::kMore;
    case Part::kData:
      break;
  }
  return State::kMalformed;
}

}  // namespace sysone
