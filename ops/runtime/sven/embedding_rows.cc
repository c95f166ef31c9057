#include "ops/runtime/sven/embedding_rows.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace trepak {
namespace {

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

Status EmbeddingRows::SetSlots(size_t slots) {
  if (this->slots() > 0) {
    Moves moves;
    TREPAK_RETURN_IF_ERROR(Place(std::vector<bool>(static_cast<size_t>(rows_)), &moves));
  }
  // Before there is memory for new slots, that of the old ones must be free.
  rows_of_slots_.clear();
  fast_memory_ = EmbeddingMemory();
  fast_ = nullptr;
  slots = std::min({slots, static_cast<size_t>(rows_), static_cast<size_t>(kRowIsHome)});
  if (slots > 0 && places_ == nullptr) {
    TREPAK_RETURN_IF_ERROR(
        EmbeddingMemory::Make(static_cast<size_t>(rows_) * sizeof(uint32_t), &place_memory_));
    places_ = static_cast<uint32_t*>(place_memory_.data());
    std::fill(places_, places_ + rows_, kRowIsHome);
  }
  TREPAK_RETURN_IF_ERROR(EmbeddingMemory::Make(slots * record_bytes(), &fast_memory_));
  fast_ = static_cast<float*>(fast_memory_.data());
  rows_of_slots_.assign(slots, kEmpty);
  return OkStatus();
}

Status EmbeddingRows::Place(const std::vector<bool>& chosen, Moves* moves) {
  *moves = Moves();
  std::vector<size_t> free;
  for (size_t slot = 0; slot < slots(); ++slot) {
    const int64_t row = rows_of_slots_[slot];
    if (row == kEmpty || !chosen[static_cast<size_t>(row)]) {
      free.push_back(slot);
      TREPAK_RETURN_IF_ERROR(row == kEmpty ? OkStatus() : MakeHome(row));
    }
  }
  auto next = free.begin();
  for (int64_t row = 0; row < rows_; ++row) {
    if (chosen[static_cast<size_t>(row)] && !IsFast(row)) {
      if (next == free.end()) {
        return InternalError("more rows are to lie in fast memory than there are slots");
      }
      const size_t slot = *next++;
      if (rows_of_slots_[slot] != kEmpty) {
        MoveOut(slot);
        ++moves->out;
      }
      MoveIn(row, slot);
      ++moves->in;
    }
  }
  for (; next != free.end(); ++next) {
    if (rows_of_slots_[*next] != kEmpty) {
      MoveOut(*next);
      ++moves->out;
    }
  }
  return OkStatus();
}

void EmbeddingRows::WillNeed(const int64_t* rows, size_t count) const {
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

void EmbeddingRows::MoveOut(size_t slot) {
  const int64_t row = std::exchange(rows_of_slots_[slot], kEmpty);
  places_[row] = kRowIsHome;
  std::memcpy(Row(row), fast_ + slot * record_, record_bytes());
}

void EmbeddingRows::MoveIn(int64_t row, size_t slot) {
  float* const to = fast_ + slot * record_;
  if (HasHome(row)) {
    std::memcpy(to, Row(row), record_bytes());
  } else {
    std::memset(to, 0, record_bytes());  // nobody has touched it
  }
  rows_of_slots_[slot] = row;
  places_[row] = static_cast<uint32_t>(slot);
}

}  // namespace trepak
