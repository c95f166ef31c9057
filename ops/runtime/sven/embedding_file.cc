#include "ops/runtime/sven/embedding_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "ops/runtime/net/unnamed_file.h"

namespace trepak {
namespace {

const auto kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

std::string WhatIsWrong() { return std::generic_category().message(errno); }

// Writes zeros, for file systems that can't take disk in any other way. Returns as fallocate does.
int WriteZeros(int file, size_t begin, size_t bytes) {
  const std::vector<char> zeros(std::min<size_t>(bytes, size_t{1} << 16));
  while (bytes > 0) {
    const ssize_t written =
        pwrite(file, zeros.data(), std::min(bytes, zeros.size()), static_cast<off_t>(begin));
    if (written < 0) {
      return -1;
    }
    begin += static_cast<size_t>(written);
    bytes -= static_cast<size_t>(written);
  }
  return 0;
}

}  // namespace

Status EmbeddingFile::Make(const std::string& folder, size_t bytes,
                           std::unique_ptr<EmbeddingFile>* made) {
  std::unique_ptr<EmbeddingFile> file(new EmbeddingFile);
  file->folder_ = folder;
  file->bytes_ = bytes;
  file->file_ = OpenUnnamed(folder, "trepak-embeddings-");
  if (file->file_ < 0) {
    return FailedPreconditionError(
        "no file for " + std::to_string(bytes) + " bytes can be made in the folder '" + folder +
        "': " + WhatIsWrong() + "; folder= must name one that is there and can be written to");
  }
  const size_t blocks = (bytes + kBlock - 1) / kBlock;
  file->taken_ = std::make_unique<std::atomic<uint8_t>[]>(blocks);
  if (bytes > 0) {
    // The file grows when disk is taken; what lies behind its end is not touched before.
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->file_, 0);
    if (memory == MAP_FAILED) {
      return ResourceExhaustedError("a file of " + std::to_string(bytes) +
                                    " bytes can't be mapped: " + WhatIsWrong());
    }
    // Rows are touched in no order: what the kernel would read beside them is not needed.
    (void)madvise(memory, bytes, MADV_RANDOM);
    file->data_ = static_cast<char*>(memory);
  }
  *made = std::move(file);
  return OkStatus();
}

EmbeddingFile::~EmbeddingFile() {
  if (data_ != nullptr) {
    munmap(data_, bytes_);
  }
  if (file_ >= 0) {
    close(file_);
  }
}

Status EmbeddingFile::Take(size_t begin, size_t bytes) {
  for (size_t block = begin / kBlock; block <= (begin + bytes - 1) / kBlock; ++block) {
    if (taken_[block].load(std::memory_order_acquire) == 0) {
      TREPAK_RETURN_IF_ERROR(TakeBlock(block));
    }
  }
  return OkStatus();
}

void EmbeddingFile::WillNeed(size_t begin, size_t bytes) const {
  const size_t page_begin = begin / kPage * kPage;
  (void)madvise(data_ + page_begin, begin + bytes - page_begin, MADV_WILLNEED);
}

bool EmbeddingFile::IsInMemory(size_t begin) const {
  unsigned char is_there = 0;
  return mincore(data_ + begin / kPage * kPage, 1, &is_there) == 0 && (is_there & 1) != 0;
}

Status EmbeddingFile::TakeBlock(size_t block) {
  std::lock_guard<std::mutex> lock(taking_);
  if (taken_[block].load(std::memory_order_relaxed) != 0) {
    return OkStatus();
  }
  const size_t begin = block * kBlock;
  const size_t bytes = std::min(kBlock, bytes_ - begin);
  int failed = 0;
  do {
    failed = fallocate(file_, 0, static_cast<off_t>(begin), static_cast<off_t>(bytes));
  } while (failed != 0 && errno == EINTR);
  if (failed != 0 && errno == EOPNOTSUPP) {
    failed = WriteZeros(file_, begin, bytes);
  }
  if (failed != 0) {
    return ResourceExhaustedError("the file of rows in the folder '" + folder_ + "' has taken " +
                                  std::to_string(taken_bytes_) + " of " + std::to_string(bytes_) +
                                  " bytes of disk, and " + std::to_string(bytes) +
                                  " more can't be had: " + WhatIsWrong() +
                                  "; free disk there, or let folder= name one with more");
  }
  taken_[block].store(1, std::memory_order_release);
  taken_bytes_ += bytes;
  return OkStatus();
}

}  // namespace trepak
