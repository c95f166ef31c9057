#include "ops/runtime/sven/embedding_rows.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>
#include <utility>

namespace trepak {
namespace {

// Slots are numbered as TensorFlow's kernels number rows.
constexpr auto kMostSlots = static_cast<size_t>(std::numeric_limits<int32_t>::max());
constexpr size_t kMovedAtOnce = 4096;  // rows

// Fails if their bytes can't be counted.
Status CheckSize(int64_t rows, size_t record) {
  return static_cast<uint64_t>(rows) <=
                 std::numeric_limits<size_t>::max() / 2 / (record * sizeof(float))
             ? OkStatus()
             : ResourceExhaustedError(std::to_string(rows) + " rows are too many");
}

}  // namespace

EmbeddingMemory::~EmbeddingMemory() {
  if (data_ != nullptr) {
    munmap(data_, bytes_);
  }
}

Status EmbeddingMemory::Make(size_t bytes, EmbeddingMemory* made) {
  EmbeddingMemory taken;
  if (bytes > 0) {
    void* const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      return ResourceExhaustedError(
          "no memory for " + std::to_string(bytes) +
          " bytes: " + std::generic_category().message(errno) +
          "; use more ranks, less fast_bytes=, or a folder= where rows lie that memory has no " +
          "room for");
    }
    // Rows are touched in no order: with small pages each would also miss the table of pages.
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    taken.data_ = memory;
    taken.bytes_ = bytes;
  }
  *made = std::move(taken);
  return OkStatus();
}

Status EmbeddingRows::Make(int64_t rows, size_t record, EmbeddingRows* made) {
  TREPAK_RETURN_IF_ERROR(CheckSize(rows, record));
  EmbeddingRows taken;
  taken.record_ = record;
  taken.rows_ = rows;
  TREPAK_RETURN_IF_ERROR(EmbeddingMemory::Make(taken.bytes(), &taken.memory_));
  taken.values_ = static_cast<float*>(taken.memory_.data());
  *made = std::move(taken);
  return OkStatus();
}

Status EmbeddingRows::MakeInFile(int64_t rows, size_t record, const std::string& folder,
                                 EmbeddingRows* made) {
  TREPAK_RETURN_IF_ERROR(CheckSize(rows, record));
  EmbeddingRows taken;
  taken.record_ = record;
  taken.rows_ = rows;
  TREPAK_RETURN_IF_ERROR(EmbeddingFile::Make(folder, taken.bytes(), &taken.file_));
  taken.values_ = reinterpret_cast<float*>(taken.file_->data());
  *made = std::move(taken);
  return OkStatus();
}

Status EmbeddingRows::SetSlots(size_t slots, size_t begin) {
  if (this->slots() > 0) {
    Moves moves;
    TREPAK_RETURN_IF_ERROR(Place(std::vector<bool>(static_cast<size_t>(rows_)), &moves));
  }
  // Before there is memory for new slots, that of the old ones must be free.
  rows_of_slots_.clear();
  fast_memory_ = EmbeddingMemory();
  fast_ = nullptr;
  slots = std::min({slots, static_cast<size_t>(rows_), kMostSlots});
  if (slots > 0 && places_ == nullptr) {
    TREPAK_RETURN_IF_ERROR(
        EmbeddingMemory::Make(static_cast<size_t>(rows_) * sizeof(uint32_t), &place_memory_));
    places_ = static_cast<uint32_t*>(place_memory_.data());
    std::fill(places_, places_ + rows_, kRowIsHome);
  }
  begin_ = begin;
  if (!is_on_device()) {
    TREPAK_RETURN_IF_ERROR(EmbeddingMemory::Make(slots * record_bytes(), &fast_memory_));
    fast_ = static_cast<float*>(fast_memory_.data());
  }
  rows_of_slots_.assign(slots, kEmpty);
  return OkStatus();
}

Status EmbeddingRows::Place(const std::vector<bool>& chosen, Moves* moves) {
  *moves = Moves();
  std::vector<int32_t> free;
  std::vector<int32_t> leaving;
  for (size_t slot = 0; slot < slots(); ++slot) {
    const int64_t row = rows_of_slots_[slot];
    if (row == kEmpty || !chosen[static_cast<size_t>(row)]) {
      free.push_back(static_cast<int32_t>(slot));
    }
    if (row != kEmpty && !chosen[static_cast<size_t>(row)]) {
      leaving.push_back(static_cast<int32_t>(slot));
      TREPAK_RETURN_IF_ERROR(MakeHome(row));
    }
  }
  std::vector<int64_t> coming;
  for (int64_t row = 0; row < rows_; ++row) {
    if (chosen[static_cast<size_t>(row)] && !IsFast(row)) {
      coming.push_back(row);
    }
  }
  if (coming.size() > free.size()) {
    return InternalError("more rows are to lie in fast memory than there are slots");
  }
  TREPAK_RETURN_IF_ERROR(MoveOut({leaving.data(), leaving.size()}));
  TREPAK_RETURN_IF_ERROR(MoveIn(coming, {free.data(), coming.size()}));
  *moves = {coming.size(), leaving.size()};
  return OkStatus();
}

Status EmbeddingRows::ReadSlots(Span<int32_t> slots, float* rows) const {
  if (is_on_device()) {
    return device_->Read({begin_, this->slots(), record_}, slots, rows);
  }
  for (const int32_t slot : slots) {
    std::memcpy(rows, fast_ + static_cast<size_t>(slot) * record_, record_bytes());
    rows += record_;
  }
  return OkStatus();
}

Status EmbeddingRows::WriteSlots(Span<int32_t> slots, const float* rows) const {
  if (is_on_device()) {
    return device_->Write({begin_, this->slots(), record_}, slots, rows);
  }
  for (const int32_t slot : slots) {
    std::memcpy(fast_ + static_cast<size_t>(slot) * record_, rows, record_bytes());
    rows += record_;
  }
  return OkStatus();
}

void EmbeddingRows::WillNeed(const int64_t* rows, size_t count) const {
  if (file_ == nullptr) {
    return;
  }
  // To ask the kernel for a row that is there takes about as long as to copy several. Where the
  // kernel keeps the whole file in memory, all of some that are looked at are there.
  constexpr size_t kLookedAt = 32;
  const auto is_at_home = [&](int64_t row) { return !IsFast(row) && HasHome(row); };
  const auto begin = [&](int64_t row) { return static_cast<size_t>(row) * record_bytes(); };
  bool is_all_there = true;
  for (size_t i = 0; i < count && is_all_there; i += 1 + count / kLookedAt) {
    is_all_there = !is_at_home(rows[i]) || file_->IsInMemory(begin(rows[i]));
  }
  for (size_t i = 0; i < count && !is_all_there; ++i) {
    if (is_at_home(rows[i])) {
      file_->WillNeed(begin(rows[i]), record_bytes());
    }
  }
}

Status EmbeddingRows::MoveOut(Span<int32_t> slots) {
  std::vector<float> moved(std::min(slots.size, kMovedAtOnce) * record_);
  for (size_t begin = 0; begin < slots.size; begin += kMovedAtOnce) {
    const Span<int32_t> block{slots.data + begin, std::min(kMovedAtOnce, slots.size - begin)};
    TREPAK_RETURN_IF_ERROR(ReadSlots(block, moved.data()));
    const float* from = moved.data();
    for (const int32_t slot : block) {
      const int64_t row = std::exchange(rows_of_slots_[static_cast<size_t>(slot)], kEmpty);
      places_[row] = kRowIsHome;
      std::memcpy(Home(row), from, record_bytes());
      from += record_;
    }
  }
  return OkStatus();
}

Status EmbeddingRows::MoveIn(const std::vector<int64_t>& rows, Span<int32_t> slots) {
  std::vector<float> moved(std::min(slots.size, kMovedAtOnce) * record_);
  for (size_t begin = 0; begin < slots.size; begin += kMovedAtOnce) {
    const Span<int32_t> block{slots.data + begin, std::min(kMovedAtOnce, slots.size - begin)};
    for (size_t i = 0; i < block.size; ++i) {
      float* const to = moved.data() + i * record_;
      if (const int64_t row = rows[begin + i]; HasHome(row)) {
        std::memcpy(to, Home(row), record_bytes());
      } else {
        std::memset(to, 0, record_bytes());  // nobody has touched it
      }
    }
    TREPAK_RETURN_IF_ERROR(WriteSlots(block, moved.data()));
    for (size_t i = 0; i < block.size; ++i) {
      rows_of_slots_[static_cast<size_t>(block.data[i])] = rows[begin + i];
      places_[rows[begin + i]] = static_cast<uint32_t>(block.data[i]);
    }
  }
  return OkStatus();
}

}  // namespace trepak
