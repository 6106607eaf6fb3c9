// SPDX-License-Identifier: Apache-2.0
#include "model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace sysone {

MappedFile::MappedFile(std::string path, const std::byte* data, size_t size)
    : path_(std::move(path)), data_(data), size_(size) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

Result<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Error(Code::kNotFound, "%s: %s", path.c_str(), std::strerror(errno));
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return Error(Code::kCorrupt, "%s: not a regular file", path.c_str());
  }
  const auto size = static_cast<size_t>(info.st_size);
  const void* data = nullptr;
  if (size > 0) {
    void* const mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    const int error = errno;
    if (mapped == MAP_FAILED) {
      close(fd);
      return Error(Code::kCorrupt, "%s: cannot be mapped: %s", path.c_str(), std::strerror(error));
    }
    data = mapped;
  }
  close(fd);
  return std::shared_ptr<const MappedFile>(
      new MappedFile(path, static_cast<const std::byte*>(data), size));
}

Result<std::string> ReadWholeFile(const std::string& path) {
  SYSONE_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
  return std::string(reinterpret_cast<const char*>(file->data()), file->size());
}

}  // namespace sysone
