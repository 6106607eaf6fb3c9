// SPDX-License-Identifier: Apache-2.0
#include "api_server/inflate.h"

#include <zlib.h>

#include <algorithm>
#include <limits>

namespace sysone {
namespace {

// zlib's code for "gzip wrapper only, largest window".
constexpr int kGzipWindowBits = 15 + 16;
constexpr size_t kStepBytes = 64u << 10;

// inflateEnd on every way out.
struct Inflater {
  z_stream stream{};
  bool ready = inflateInit2(&stream, kGzipWindowBits) == Z_OK;
  ~Inflater() {
    if (ready) inflateEnd(&stream);
  }
};

}  // namespace

Status Gunzip(std::string_view compressed, size_t max_bytes, std::string& out) {
  out.clear();
  SYSONE_CHECK(compressed.size() <= std::numeric_limits<uInt>::max(),
               "bodies are bounded far below 4 GiB");
  Inflater inflater;
  SYSONE_CHECK(inflater.ready, "zlib gives no inflater");
  z_stream& stream = inflater.stream;
  // zlib does not write through next_in; its type has no const without ZLIB_CONST.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
  stream.avail_in = static_cast<uInt>(compressed.size());
  while (true) {
    // One byte above the bound tells "exactly full" from "too large".
    const size_t room = std::min(kStepBytes, max_bytes + 1 - out.size());
    const size_t before = out.size();
    out.resize(before + room);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + before);
    stream.avail_out = static_cast<uInt>(room);
    const int code = inflate(&stream, Z_NO_FLUSH);
    out.resize(before + room - stream.avail_out);
    if (out.size() > max_bytes)
      return Error(Code::kTooLarge, "the inflated body is larger than %zu bytes", max_bytes);
    if (code == Z_STREAM_END) {
      if (stream.avail_in == 0) return {};
      if (inflateReset(&stream) != Z_OK) return Error(Code::kMalformed, "the gzip body is damaged");
      continue;  // another member follows
    }
    // Z_BUF_ERROR with input left only asks for room, and every turn gives new room.
    const bool starved = stream.avail_in == 0 && stream.avail_out != 0;
    if ((code != Z_OK && code != Z_BUF_ERROR) || starved)
      return Error(Code::kMalformed, "the gzip body is damaged or ends early");
  }
}

}  // namespace sysone
