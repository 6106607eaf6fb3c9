// Takes the framing off a chunked request body, piece by piece and strictly (RFC 9112 section 7.1).
// Pure.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sysone {

class ChunkedBody {
 public:
  enum class State { kMore, kDone, kMalformed, kTooLarge };

  // `max_bytes` bounds the decoded body.
  explicit ChunkedBody(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Decodes from the front of `input`, appends to `body`, and reports in `used` how many bytes it
  // took. Takes nothing behind the end of the body: those belong to the next request.
  State Feed(std::string_view input, std::string& body, size_t& used);

 private:
  enum class Part { kSize, kData, kDataEnd, kTrailer };

  State FeedLine(char c);
  State EndLine();

  const size_t max_bytes_;
  Part part_ = Part::kSize;
  std::string line_;          // the size or trailer line so far, without CR LF
  bool carriage_ = false;     // the last byte of the line was CR
  uint64_t chunk_left_ = 0;   // bytes of data until the chunk's end
  size_t decoded_bytes_ = 0;  // announced so far
  size_t trailer_bytes_ = 0;
};

}  // namespace sysone
