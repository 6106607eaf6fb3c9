// SPDX-License-Identifier: Apache-2.0
#include "worker/tuning_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/log.h"
#include "worker/batch_message.h"

namespace sysone {
namespace {

constexpr std::string_view kTitle = "sysone tuning cache 1";
// Thousands of choices; a larger file is none of ours.
constexpr off_t kLargestFile = 16 << 20;

std::string LinesOf(const TuningFacts& facts) {
  std::string lines;
  for (const auto& [name, value] : facts) lines += name + ": " + value + "\n";
  return lines;
}

std::string_view NextLine(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

// Closed with its owner.
class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

Status Unavailable(const char* what, const std::string& path, int error) {
  return Error(Code::kUnavailable, "%s %s: %s", what, path.c_str(), strerror(error));
}

Result<std::string> ReadAll(const std::string& path) {
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd() < 0) {
    if (errno == ENOENT || errno == ENOTDIR)
      return Error(Code::kNotFound, "%s: no such file", path.c_str());
    return Unavailable("cannot open", path, errno);
  }
  struct stat facts;
  if (fstat(file.fd(), &facts) != 0) return Unavailable("cannot read", path, errno);
  if (!S_ISREG(facts.st_mode) || facts.st_size > kLargestFile)
    return Error(Code::kCorrupt, "%s is no tuning cache", path.c_str());
  std::string text(static_cast<size_t>(facts.st_size), '\0');
  size_t at = 0;
  while (at < text.size()) {
    const ssize_t got = read(file.fd(), text.data() + at, text.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Unavailable("cannot read", path, errno);
    if (got == 0) break;
    at += static_cast<size_t>(got);
  }
  text.resize(at);
  return text;
}

Status WriteAll(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t wrote = write(fd, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return Unavailable("cannot write", path, errno);
    text.remove_prefix(static_cast<size_t>(wrote));
  }
  if (fsync(fd) != 0) return Unavailable("cannot write", path, errno);
  return {};
}

std::string ChecksumLine(std::string_view text) {
  return Format("checksum %016" PRIx64 "\n", BatchFingerprint(std::as_bytes(std::span(text))));
}

}  // namespace

TuningCache::TuningCache(const std::string& dir, const TuningFacts& subject,
                         const TuningFacts& versions)
    : dir_(dir), head_(LinesOf(subject) + LinesOf(versions)) {
  const std::string named = LinesOf(subject);
  path_ = Format("%s/%016" PRIx64 ".tuning", dir.c_str(),
                 BatchFingerprint(std::as_bytes(std::span(named))));
}

Result<std::vector<std::byte>> TuningCache::Read() const {
  SYSONE_ASSIGN_OR_RETURN(const std::string text, ReadAll(path_));
  std::string_view rest = text;
  const std::string_view title = NextLine(rest);
  if (title != kTitle) return Error(Code::kCorrupt, "%s is no tuning cache", path_.c_str());
  const std::string_view checksum = NextLine(rest);
  if (ChecksumLine(rest) != std::string(checksum) + "\n")
    return Error(Code::kCorrupt, "%s is damaged or cut short", path_.c_str());
  for (std::string_view own = head_; !own.empty();) {
    const std::string want(NextLine(own)), line(NextLine(rest));
    if (line != want)
      return Error(Code::kUnsupported, "%s was made for %s, and this is %s", path_.c_str(),
                   line.c_str(), want.c_str());
  }
  if (!NextLine(rest).empty())
    return Error(Code::kUnsupported, "%s was made for more than is known here", path_.c_str());
  const auto bytes = std::as_bytes(std::span(rest));
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

Status TuningCache::Write(std::span<const std::byte> bytes) const {
  std::error_code error;
  std::filesystem::create_directories(dir_, error);
  if (error) return Unavailable("cannot make", dir_, error.value());
  std::string temporary = path_ + ".XXXXXX";
  const File file(mkostemp(temporary.data(), O_CLOEXEC));
  if (file.fd() < 0) return Unavailable("cannot make", temporary, errno);
  const std::string summed =
      head_ + "\n" + std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  Status written =
      WriteAll(file.fd(), std::string(kTitle) + "\n" + ChecksumLine(summed) + summed, temporary);
  if (written.ok() && rename(temporary.c_str(), path_.c_str()) != 0)
    written = Unavailable("cannot replace", path_, errno);
  if (!written.ok()) unlink(temporary.c_str());
  return written;
}

}  // namespace sysone
