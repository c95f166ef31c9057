#include "ops/runtime/dymem/swap_tier.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <system_error>
#include <utility>

#include "ops/runtime/dymem/swap_space.h"
#include "ops/runtime/net/unnamed_file.h"

namespace trepak {
namespace {

std::string WhatIsWrong(int error) { return std::generic_category().message(error); }

// What both tiers share: which slots are taken.
class SpaceTier : public SwapTier {
 public:
  // `place` and `remedy` are for errors: what is full, and what helps.
  SpaceTier(size_t limit, size_t granule, std::string place, std::string remedy)
      : place_(std::move(place)), remedy_(std::move(remedy)), space_(limit, granule) {}

  Status Take(size_t bytes, Slot* slot) override {
    std::lock_guard<std::mutex> lock(mutex_);
    slot->bytes = bytes;
    if (space_.Take(bytes, &slot->begin)) {
      return OkStatus();
    }
    return ResourceExhaustedError(place_ + " has no room for " + std::to_string(bytes) +
                                  " bytes: " + std::to_string(space_.used()) + " of " +
                                  std::to_string(space_.limit()) +
                                  " are used, and the largest free piece has " +
                                  std::to_string(space_.largest_free()) + "; " + remedy_);
  }

  Status Give(const Slot& slot) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (space_.Give(slot.begin, slot.bytes)) {
      return OkStatus();
    }
    return InternalError(place_ + " has no slot of " + std::to_string(slot.bytes) + " bytes at " +
                         std::to_string(slot.begin) +
                         " to give back: each must be given back once; report this as a bug");
  }

  size_t limit() const override { return space_.limit(); }
  size_t used() const override { return Locked(&SwapSpace::used); }
  size_t peak() const override { return Locked(&SwapSpace::peak); }
  size_t held() const override { return Locked(&SwapSpace::reached); }

 protected:
  const std::string place_;
  const std::string remedy_;

 private:
  size_t Locked(size_t (SwapSpace::*what)() const) const {
    std::lock_guard<std::mutex> lock(mutex_);
    return (space_.*what)();
  }

  mutable std::mutex mutex_;
  SwapSpace space_;  // guarded by mutex_, but for its limit
};

class MemoryTier final : public SpaceTier {
 public:
  // Slots begin where vector instructions copy well, and share no cache line.
  static constexpr size_t kGranule = 64;

  // Owns the memory, which has at least `limit` bytes.
  MemoryTier(char* memory, size_t limit)
      : SpaceTier(limit, kGranule, "the host memory for swapped tensors",
                  "raise its limit, or swap to a folder on disk"),
        memory_(memory),
        bytes_(limit) {}
  ~MemoryTier() override { munmap(memory_, bytes_); }

  bool is_memory() const override { return true; }

  Status Write(const Slot& slot, const char* from, size_t bytes) override {
    if (bytes > 0) {  // else `from` may be null, which memcpy may not get
      std::memcpy(memory_ + slot.begin, from, bytes);
    }
    return OkStatus();
  }

  Status Read(const Slot& slot, char* to, size_t bytes) override {
    if (bytes > 0) {
      std::memcpy(to, memory_ + slot.begin, bytes);
    }
    return OkStatus();
  }

 private:
  char* const memory_;
  const size_t bytes_;
};

class FileTier final : public SpaceTier {
 public:
  // The kernel drops whole pages from its cache, so that no two slots may share one.
  static constexpr size_t kGranule = 4096;
  // Two of these are in the kernel's cache at most: one on its way to disk, the next being copied.
  static constexpr size_t kChunk = size_t{2} << 20;

  // Owns the file.
  FileTier(int file, const std::string& folder, size_t limit)
      : SpaceTier(limit, kGranule, "the file of swapped tensors in the folder '" + folder + "'",
                  "raise its limit, or swap fewer tensors"),
        file_(file) {}
  ~FileTier() override { close(file_); }

  bool is_memory() const override { return false; }

  Status Write(const Slot& slot, const char* from, size_t bytes) override {
    for (size_t at = 0; at < bytes; at += kChunk) {
      const size_t chunk = std::min(kChunk, bytes - at);
      TREPAK_RETURN_IF_ERROR(WriteAll(slot.begin + at, from + at, chunk));
      // Starts its way to disk; that it arrives is looked at below.
      (void)sync_file_range(file_, Offset(slot.begin + at), Offset(chunk), SYNC_FILE_RANGE_WRITE);
      if (at > 0) {
        TREPAK_RETURN_IF_ERROR(BringToDisk(slot.begin + at - kChunk, kChunk));
      }
    }
    const size_t last = bytes == 0 ? 0 : (bytes - 1) / kChunk * kChunk;
    return bytes == 0 ? OkStatus() : BringToDisk(slot.begin + last, bytes - last);
  }

  // The kernel reads ahead by itself: to tell it what comes next made nothing faster.
  Status Read(const Slot& slot, char* to, size_t bytes) override {
    for (size_t at = 0; at < bytes; at += kChunk) {
      const size_t chunk = std::min(kChunk, bytes - at);
      const Status status = ReadAll(slot.begin + at, to + at, chunk);
      Uncache(slot.begin + at, chunk);
      TREPAK_RETURN_IF_ERROR(status);
    }
    return OkStatus();
  }

 private:
  static off_t Offset(size_t bytes) { return static_cast<off_t>(bytes); }

  Status WriteAll(size_t begin, const char* from, size_t bytes) {
    while (bytes > 0) {
      const ssize_t written = pwrite(file_, from, bytes, Offset(begin));
      if (written < 0 && errno == EINTR) {
        continue;
      }
      if (written <= 0) {
        return WriteError(written < 0 ? errno : ENOSPC, bytes);
      }
      begin += static_cast<size_t>(written);
      from += written;
      bytes -= static_cast<size_t>(written);
    }
    return OkStatus();
  }

  Status ReadAll(size_t begin, char* to, size_t bytes) {
    while (bytes > 0) {
      const ssize_t got = pread(file_, to, bytes, Offset(begin));
      if (got < 0 && errno == EINTR) {
        continue;
      }
      if (got <= 0) {
        return InternalError(place_ + " does not give " + std::to_string(bytes) + " bytes at " +
                             std::to_string(begin) + " back: " +
                             (got < 0 ? WhatIsWrong(errno) : std::string("it ends before")) +
                             "; see the system's log for errors of that disk");
      }
      begin += static_cast<size_t>(got);
      to += got;
      bytes -= static_cast<size_t>(got);
    }
    return OkStatus();
  }

  // Waits until they are on disk, and has the kernel drop its copy, which it does of clean pages
  // alone.
  Status BringToDisk(size_t begin, size_t bytes) {
    int failed = 0;
    do {
      failed = sync_file_range(
          file_, Offset(begin), Offset(bytes),
          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    } while (failed != 0 && errno == EINTR);
    if (failed != 0 && (errno == ENOSYS || errno == EINVAL || errno == ESPIPE)) {
      failed = fdatasync(file_);  // a system that can't bring a part alone
    }
    if (failed != 0) {
      return WriteError(errno, bytes);
    }
    Uncache(begin, bytes);
    return OkStatus();
  }

  void Uncache(size_t begin, size_t bytes) {
    const size_t whole = (bytes + kGranule - 1) / kGranule * kGranule;
    (void)posix_fadvise(file_, Offset(begin), Offset(whole), POSIX_FADV_DONTNEED);
  }

  Status WriteError(int error, size_t bytes) const {
    const std::string what =
        place_ + " takes no " + std::to_string(bytes) + " bytes more: " + WhatIsWrong(error);
    if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
      return ResourceExhaustedError(what + "; free disk there, or swap to a folder with more");
    }
    return InternalError(what + "; see the system's log for errors of that disk");
  }

  const int file_;
};

}  // namespace

Status MakeMemoryTier(size_t limit, std::unique_ptr<SwapTier>* made) {
  // Only what is touched becomes memory. One range of addresses for all slots lets free neighbours
  // join, and the limit holds whatever the sizes of tensors are.
  const size_t bytes = std::max<size_t>(limit, 1);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return ResourceExhaustedError("the system gives no " + std::to_string(limit) +
                                  " bytes of addresses to swap tensors to: " + WhatIsWrong(errno) +
                                  "; lower that limit, or swap to a folder on disk");
  }
  *made = std::make_unique<MemoryTier>(static_cast<char*>(memory), bytes);
  return OkStatus();
}

Status MakeFileTier(const std::string& folder, size_t limit, std::unique_ptr<SwapTier>* made) {
  const int file = OpenUnnamed(folder, "trepak-swap-");
  if (file < 0) {
    return FailedPreconditionError("no file for swapped tensors can be made in the folder '" +
                                   folder + "': " + WhatIsWrong(errno) +
                                   "; name a folder that is there and can be written to");
  }
  *made = std::make_unique<FileTier>(file, folder, limit);
  return OkStatus();
}

}  // namespace trepak
