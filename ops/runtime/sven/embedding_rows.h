// The memory of one shard's rows.

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_ROWS_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/net/status.h"
#include "ops/runtime/sven/embedding_device.h"
#include "ops/runtime/sven/embedding_file.h"

namespace trepak {

// Memory for numbers that is zero, and costs nothing until it is touched. Owns it. Thread safety:
// as an array's.
class EmbeddingMemory {
 public:
  EmbeddingMemory() = default;
  EmbeddingMemory(EmbeddingMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  EmbeddingMemory& operator=(EmbeddingMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~EmbeddingMemory();

  // Fails, naming the size, if there is not enough.
  static Status Make(size_t bytes, EmbeddingMemory* made);

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// In place of a slot: the row lies where all do that have none.
constexpr uint32_t kRowIsHome = std::numeric_limits<uint32_t>::max();

// The way to rows while nobody moves them: a copy, so that writing to rows can't change it, and a
// loop needs not look again. Thread safety: as an array's.
template <bool has_slots>
struct RowView {
  float* values;           // by row
  float* fast;             // by slot
  const uint32_t* places;  // by row
  size_t record;

  bool IsFast(int64_t row) const { return has_slots && places[row] != kRowIsHome; }

  float* Row(int64_t row) const {
    if constexpr (has_slots) {
      // Both come without a jump, since which of them it is can't be foreseen.
      const uint32_t place = places[row];
      const size_t at = place == kRowIsHome ? static_cast<size_t>(row) : place;
      return (place == kRowIsHome ? values : fast) + at * record;
    } else {
      return values + static_cast<size_t>(row) * record;
    }
  }

  // Has the beginning of a row brought near, since it will be used soon. Always inline: GCC leaves
  // out calls of functions that it finds to do nothing but this.
  [[gnu::always_inline]] void Prefetch(int64_t row) const {
    constexpr size_t kLine = 64;      // bytes of a line of the cache
    constexpr size_t kMostLines = 4;  // the processor sees by itself that the rest follows
    const char* const begin = reinterpret_cast<const char*>(Row(row));
    const size_t bytes = record * sizeof(float);
    for (size_t line = 0; line < kMostLines * kLine && line < bytes; line += kLine) {
      __builtin_prefetch(begin + line, 1);
    }
  }
  // The same of where it lies, which Prefetch looks at.
  [[gnu::always_inline]] void PrefetchPlace(int64_t row) const {
    if constexpr (has_slots) {
      __builtin_prefetch(places + row);
    }
  }
};

// Rows of which each is one record: weights, and behind them what the optimizer keeps, so that an
// update touches one place. Everybody finds rows through AccessRows (embedding_access.h), whatever
// memory they lie in.
//
// With a folder or a device they have two tiers (thesis, section 6.1.3). Each row has its home in
// the slow tier: a file, or without a folder memory; so many as fit lie in slots of the fast tier
// instead: memory, or the device's. What is in their home then is old. Before a row is touched that
// may never have been, it must have disk (HasPlace).
//
// Owns the memory. Thread safety: as an array's: threads may use different rows at once. Where rows
// lie is changed by SetSlots and Place alone, while nobody uses any; HasPlace and MakePlace may be
// called from any thread beside Row.
class EmbeddingRows {
 public:
  // In memory. Fails if there is not enough.
  static Status Make(int64_t rows, size_t record, EmbeddingRows* made);
  // In a file in the folder; a fast tier comes with SetSlots.
  static Status MakeInFile(int64_t rows, size_t record, const std::string& folder,
                           EmbeddingRows* made);
  // The fast tier, which comes with SetSlots, is to lie in a device's memory.
  void UseDevice(std::shared_ptr<EmbeddingDevice> device) { device_ = std::move(device); }

  // Calls `use` with a RowView of these rows: what goes through many rows costs nothing more where
  // there are no slots.
  template <typename Use>
  auto Visit(const Use& use) const {
    return places_ == nullptr ? use(RowView<false>{values_, fast_, places_, record_})
                              : use(RowView<true>{values_, fast_, places_, record_});
  }

  // Not of a row that lies on a device.
  float* Row(int64_t row) const {
    return Visit([&](const auto& view) { return view.Row(row); });
  }

  int64_t rows() const { return rows_; }
  // Numbers in a row.
  size_t record() const { return record_; }
  size_t record_bytes() const { return record_ * sizeof(float); }

  // Of both tiers, touched or not; of the fast one; and of disk that is taken.
  size_t bytes() const { return static_cast<size_t>(rows_) * record_bytes(); }
  size_t fast_bytes() const { return has_tiers() ? slots() * record_bytes() : bytes(); }
  size_t disk_bytes() const { return file_ == nullptr ? 0 : file_->taken_bytes(); }

  // Whether a row may be touched; MakePlace sees to it, or says that the disk is full.
  bool HasPlace(int64_t row) const { return file_ == nullptr || IsFast(row) || HasHome(row); }
  Status MakePlace(int64_t row) const { return IsFast(row) ? OkStatus() : MakeHome(row); }
  // Whether all may be.
  bool HasAllPlaces() const { return file_ == nullptr || file_->is_whole(); }

  // Has rows read into memory that lie in the file, since they will be used soon.
  void WillNeed(const int64_t* rows, size_t count) const;

  bool has_tiers() const { return file_ != nullptr || is_on_device(); }
  bool is_on_device() const { return device_ != nullptr; }
  bool IsFast(int64_t row) const { return places_ != nullptr && places_[row] != kRowIsHome; }
  size_t slots() const { return rows_of_slots_.size(); }

  // Where the first slot lies on the device, in numbers; 0 in memory.
  size_t begin() const { return begin_; }

  // Brings all rows home, and makes a fast tier of so many slots, which are empty. `begin`: of them
  // on the device, where others must have left that part.
  Status SetSlots(size_t slots, size_t begin = 0);

  // Copies slots to memory, one behind the other; and back. See EmbeddingDevice.
  Status ReadSlots(Span<int32_t> slots, float* rows) const;
  Status WriteSlots(Span<int32_t> slots, const float* rows) const;
  // Of a row that lies in the fast tier.
  int32_t SlotOf(int64_t row) const { return static_cast<int32_t>(places_[row]); }

  struct Moves {
    uint64_t in = 0;  // into the fast tier
    uint64_t out = 0;
  };
  // Has those rows in the fast tier, of which there must not be more than slots, and no others. If
  // there is no disk for what must leave, nothing is moved.
  Status Place(const std::vector<bool>& chosen, Moves* moves);

 private:
  static constexpr int64_t kEmpty = -1;

  bool HasHome(int64_t row) const {
    return file_ == nullptr ||
           file_->Has(static_cast<size_t>(row) * record_bytes(), record_bytes());
  }
  Status MakeHome(int64_t row) const {
    return file_ == nullptr
               ? OkStatus()
               : file_->Take(static_cast<size_t>(row) * record_bytes(), record_bytes());
  }
  float* Home(int64_t row) const { return values_ + static_cast<size_t>(row) * record_; }
  Status MoveOut(Span<int32_t> slots);
  Status MoveIn(const std::vector<int64_t>& rows, Span<int32_t> slots);

  float* values_ = nullptr;     // by row
  uint32_t* places_ = nullptr;  // by row: its slot, or kRowIsHome; null: all are at home
  float* fast_ = nullptr;       // by slot
  size_t record_ = 0;
  int64_t rows_ = 0;
  EmbeddingMemory memory_;  // of values_, unless they are the file's
  std::unique_ptr<EmbeddingFile> file_;
  EmbeddingMemory fast_memory_;              // of fast_
  std::shared_ptr<EmbeddingDevice> device_;  // in place of it
  size_t begin_ = 0;
  EmbeddingMemory place_memory_;
  std::vector<int64_t> rows_of_slots_;  // or kEmpty
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_ROWS_H_
