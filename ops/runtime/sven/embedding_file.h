// Memory that lies in a file: what a table has beyond the machine's memory.

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_FILE_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_FILE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "ops/runtime/net/status.h"

namespace trepak {

// A file of its own, mapped and shared, so that the kernel keeps in memory what is used and writes
// the rest to disk. It never has a name in its folder, so nothing is left of it, however the
// process ends.
//
// A mapped file whose disk is full ends the process by SIGBUS when a page is touched. So disk is
// taken by blocks before their first use, which tells of a full disk as an error. A block that
// nobody has used takes none.
//
// Owns the file and the mapping. Thread safety: every method may be called from any thread; the
// numbers are an array's.
class EmbeddingFile {
 public:
  // Of which disk is taken at once. Rows of a power law touch most blocks of a table sooner or
  // later; smaller ones would only need more calls.
  static constexpr size_t kBlock = size_t{1} << 18;

  // Zeros. Fails, naming the folder, if no file can be made there.
  static Status Make(const std::string& folder, size_t bytes, std::unique_ptr<EmbeddingFile>* made);

  ~EmbeddingFile();
  EmbeddingFile(const EmbeddingFile&) = delete;
  EmbeddingFile& operator=(const EmbeddingFile&) = delete;

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  // Whether these bytes, at least one, may be touched.
  bool Has(size_t begin, size_t bytes) const {
    for (size_t block = begin / kBlock; block <= (begin + bytes - 1) / kBlock; ++block) {
      if (taken_[block].load(std::memory_order_acquire) == 0) {
        return false;
      }
    }
    return true;
  }

  // Takes disk for them. Fails if it is full, or no more is allowed.
  Status Take(size_t begin, size_t bytes);

  // Has the kernel begin to read them, if they are not in memory: the disk works at many reads at
  // once, whereas who touches a page waits for it.
  void WillNeed(size_t begin, size_t bytes) const;
  // Whether the first of them are in memory.
  bool IsInMemory(size_t begin) const;

  // Whether all bytes may be touched.
  bool is_whole() const { return taken_bytes_.load(std::memory_order_acquire) == bytes_; }
  size_t taken_bytes() const { return taken_bytes_; }

 private:
  EmbeddingFile() = default;

  Status TakeBlock(size_t block);

  std::string folder_;
  int file_ = -1;
  char* data_ = nullptr;
  size_t bytes_ = 0;
  std::mutex taking_;
  std::unique_ptr<std::atomic<uint8_t>[]> taken_;  // by block; set under taking_
  std::atomic<size_t> taken_bytes_{0};             // set under taking_
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_FILE_H_
