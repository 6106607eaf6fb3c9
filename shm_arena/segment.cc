// POSIX shared memory through Boost.Interprocess: only shared_memory_object and mapped_region, none
// of its locks or its allocator, which a dying process could leave locked. Exceptions end here.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/segment.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <boost/interprocess/permissions.hpp>
#include <boost/interprocess/shared_memory_object.hpp>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "shm_arena/layout.h"
#include "shm_arena/process_table.h"

namespace sysone {
namespace {

namespace ipc = boost::interprocess;

int FileOf(const ipc::shared_memory_object& object) { return object.get_mapping_handle().handle; }

// nullopt when there is no segment of this name.
std::optional<ipc::shared_memory_object> OpenExisting(const std::string& name) {
  try {
    return ipc::shared_memory_object(ipc::open_only, name.c_str(), ipc::read_write);
  } catch (const ipc::interprocess_exception&) {
    return std::nullopt;
  }
}

// False when the name was removed, or stands for a newer segment.
bool NameIsStill(const std::string& name, const ipc::shared_memory_object& object) {
  const std::optional<ipc::shared_memory_object> named = OpenExisting(name);
  struct stat a, b;
  return named && fstat(FileOf(*named), &a) == 0 && fstat(FileOf(object), &b) == 0 &&
         a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

uint64_t SizeOf(const ipc::shared_memory_object& object) {
  struct stat info;
  return fstat(FileOf(object), &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

bool LockAsRouter(const ipc::shared_memory_object& object) {
  return flock(FileOf(object), LOCK_EX | LOCK_NB) == 0;
}

class SharedSegment : public Segment {
 public:
  SharedSegment(std::string name, ipc::shared_memory_object object, ipc::mapped_region region,
                bool owns_name)
      : name_(std::move(name)),
        object_(std::move(object)),
        region_(std::move(region)),
        owns_name_(owns_name) {
    base_ = static_cast<std::byte*>(region_.get_address());
    bytes_ = region_.get_size();
  }
  ~SharedSegment() override {
    if (owns_name_ && NameIsStill(name_, object_)) ipc::shared_memory_object::remove(name_.c_str());
  }
  void KeepName() override { owns_name_ = false; }

 private:
  std::string name_;
  ipc::shared_memory_object object_;  // stays open: its flock is the instance lock
  ipc::mapped_region region_;
  bool owns_name_;
};

class PlainSegment : public Segment {
 public:
  explicit PlainSegment(uint64_t bytes) {
    // Anonymous and shared, so that children forked by a test see it.
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    SYSONE_CHECK(memory != MAP_FAILED, "mmap of %llu bytes: %s",
                 static_cast<unsigned long long>(bytes), std::strerror(errno));
    base_ = static_cast<std::byte*>(memory);
    bytes_ = bytes;
  }
  ~PlainSegment() override { munmap(base_, bytes_); }
};

Result<std::unique_ptr<Segment>> Map(const std::string& name, ipc::shared_memory_object object,
                                     bool owns_name) {
  try {
    ipc::mapped_region region(object, ipc::read_write);
    return std::unique_ptr<Segment>(
        std::make_unique<SharedSegment>(name, std::move(object), std::move(region), owns_name));
  } catch (const ipc::interprocess_exception& error) {
    return Error(Code::kOutOfMemory, "/dev/shm/%s cannot be mapped: %s", name.c_str(),
                 error.what());
  }
}

// Every page is there when this returns, so that no later touch ends in SIGBUS.
Status Back(const std::string& name, ipc::shared_memory_object& object, uint64_t bytes) {
  struct statvfs space;
  const bool known = fstatvfs(FileOf(object), &space) == 0;
  const uint64_t free_bytes = known ? static_cast<uint64_t>(space.f_bavail) * space.f_frsize : 0;
  int failure = 0;
  // f_blocks 0: a tmpfs without a limit.
  if (known && space.f_blocks != 0 && free_bytes < bytes) {
    failure = ENOSPC;
  } else if (ftruncate(FileOf(object), static_cast<off_t>(bytes)) != 0) {
    failure = errno;
  } else {
    do {
      failure = posix_fallocate(FileOf(object), 0, static_cast<off_t>(bytes));
    } while (failure == EINTR);
  }
  if (failure == 0) return {};
  return Error(Code::kOutOfMemory,
               "/dev/shm/%s needs %llu bytes and /dev/shm has %llu free (%s): lower "
               "--shm-arena-mb, or give /dev/shm "
               "more space (for containers: --shm-size)",
               name.c_str(), static_cast<unsigned long long>(bytes),
               static_cast<unsigned long long>(free_bytes), std::strerror(failure));
}

// Who still uses the segment of a dead router, for the message; empty when nobody does. A segment
// that is no arena of this build counts as unused: replacing the name takes nothing from a process
// that has it mapped.
std::string LivingUsers(const std::string& name, ipc::shared_memory_object object) {
  if (SizeOf(object) < ArenaRegions::kSlots) return "";
  Result<std::unique_ptr<Segment>> segment = Map(name, std::move(object), false);
  if (!segment.ok() || !CheckArena((*segment)->base(), (*segment)->bytes()).ok()) return "";
  const ProcessTable table(
      reinterpret_cast<ProcessTableRegion*>((*segment)->base() + ArenaRegions::kProcesses));
  std::string users;
  for (uint32_t i = 0; i < table.lines_used(); ++i) {
    const ProcessId id = static_cast<ProcessId>(i);
    if (!table.Alive(id)) continue;
    const ProcessInfo info = *table.Read(id);
    if (!users.empty()) users += ", ";
    users +=
        std::string(ProcessRoleName(info.role)) + " pid " + std::to_string(info.identity.pid());
  }
  return users;
}

int32_t CreatorPid(const std::string& name) {
  std::optional<ipc::shared_memory_object> object = OpenExisting(name);
  if (!object || SizeOf(*object) < ArenaRegions::kSlots) return 0;
  Result<std::unique_ptr<Segment>> segment = Map(name, std::move(*object), false);
  if (!segment.ok()) return 0;
  const auto* header = reinterpret_cast<const ArenaHeader*>((*segment)->base());
  return ProcessIdentity{header->creator.load(std::memory_order_relaxed)}.pid();
}

Status AlreadyServed(const std::string& instance) {
  return Error(Code::kUnavailable,
               "instance '%s' is served already by the router with pid %d: stop it, or choose "
               "another --instance-name",
               instance.c_str(), CreatorPid(SegmentName(instance)));
}

}  // namespace

std::string SegmentName(const std::string& instance) { return "sysone." + instance; }

Status CheckInstanceName(const std::string& instance) {
  bool good = !instance.empty() && instance.size() <= 64;
  for (char c : instance) {
    good = good && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '_' || c == '-');
  }
  if (good) return {};
  return Error(Code::kInvalidArgument,
               "the instance name '%s' is not 1 to 64 letters, digits, '_' or '-'",
               instance.c_str());
}

Result<std::unique_ptr<Segment>> Segment::Create(const std::string& instance, uint64_t bytes) {
  SYSONE_RETURN_IF_ERROR(CheckInstanceName(instance));
  const std::string name = SegmentName(instance);
  // A few rounds, because another router may remove or create the name between our steps; each
  // round ends with the lock on what the name stands for, or with an answer.
  for (int round = 0; round < 8; ++round) {
    std::optional<ipc::shared_memory_object> object;
    try {
      object.emplace(ipc::create_only, name.c_str(), ipc::read_write, ipc::permissions(0600));
    } catch (const ipc::interprocess_exception& error) {
      if (error.get_error_code() != ipc::already_exists_error) {
        return Error(Code::kOutOfMemory, "/dev/shm/%s cannot be created: %s", name.c_str(),
                     error.what());
      }
    }
    if (object) {
      if (!LockAsRouter(*object))
        return AlreadyServed(instance);  // someone found it between our two calls
      if (!NameIsStill(name, *object)) continue;
      if (Status backed = Back(name, *object, bytes); !backed.ok()) {
        ipc::shared_memory_object::remove(name.c_str());
        return backed;
      }
      return Map(name, std::move(*object), true);
    }
    object = OpenExisting(name);
    if (!object) continue;
    if (!LockAsRouter(*object)) return AlreadyServed(instance);
    if (!NameIsStill(name, *object)) continue;
    // We hold the lock of a segment whose router is gone.
    std::optional<ipc::shared_memory_object> copy = OpenExisting(name);
    const std::string users = copy ? LivingUsers(name, std::move(*copy)) : "";
    if (!users.empty()) {
      return Error(Code::kUnavailable,
                   "instance '%s' lost its router, but still has %s: adopt it or stop them",
                   instance.c_str(), users.c_str());
    }
    ipc::shared_memory_object::remove(name.c_str());
  }
  return AlreadyServed(instance);
}

Result<std::unique_ptr<Segment>> Segment::Adopt(const std::string& instance) {
  SYSONE_RETURN_IF_ERROR(CheckInstanceName(instance));
  const std::string name = SegmentName(instance);
  std::optional<ipc::shared_memory_object> object = OpenExisting(name);
  if (!object)
    return Error(Code::kNotFound, "there is no instance '%s' to adopt", instance.c_str());
  if (!LockAsRouter(*object)) return AlreadyServed(instance);
  if (!NameIsStill(name, *object)) {
    return Error(Code::kNotFound, "instance '%s' was removed while it was adopted",
                 instance.c_str());
  }
  if (SizeOf(*object) < ArenaRegions::kSlots)
    return Error(Code::kCorrupt, "/dev/shm/%s is half made", name.c_str());
  SYSONE_ASSIGN_OR_RETURN(std::unique_ptr<Segment> segment, Map(name, std::move(*object), true));
  if (Status status = CheckArena(segment->base(), segment->bytes()); !status.ok()) {
    segment->KeepName();
    return status.WithContext("/dev/shm/" + name);
  }
  auto* header = reinterpret_cast<ArenaHeader*>(segment->base());
  header->creator.store(CurrentProcessIdentity().word, std::memory_order_relaxed);
  return segment;
}

Result<std::unique_ptr<Segment>> Segment::Attach(const std::string& instance, int64_t wait_us) {
  SYSONE_RETURN_IF_ERROR(CheckInstanceName(instance));
  const std::string name = SegmentName(instance);
  const int64_t until_us = MonotonicUs() + wait_us;
  for (;;) {
    std::optional<ipc::shared_memory_object> object = OpenExisting(name);
    if (object && SizeOf(*object) >= ArenaRegions::kSlots) {
      SYSONE_ASSIGN_OR_RETURN(std::unique_ptr<Segment> segment,
                              Map(name, std::move(*object), false));
      const auto* header = reinterpret_cast<const ArenaHeader*>(segment->base());
      // Acquire: pairs with the release at the end of FormatArena.
      if (header->magic.load(std::memory_order_acquire) != 0) {
        SYSONE_RETURN_IF_ERROR(
            CheckArena(segment->base(), segment->bytes()).WithContext("/dev/shm/" + name));
        return segment;
      }
    }
    if (MonotonicUs() >= until_us) {
      return Error(Code::kUnavailable,
                   "no arena /dev/shm/%s after %lld ms: is the router of instance '%s' running?",
                   name.c_str(), static_cast<long long>(wait_us / 1'000), instance.c_str());
    }
    const timespec pause = {0, 1'000'000};  // 1 ms: short against the start of a process
    nanosleep(&pause, nullptr);
  }
}

std::unique_ptr<Segment> Segment::Plain(uint64_t bytes) {
  return std::make_unique<PlainSegment>(bytes);
}

}  // namespace sysone
