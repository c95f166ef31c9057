#include "ops/runtime/dymem/memory_pool.h"

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "ops/runtime/dymem/other_threads.h"
#include "ops/runtime/dymem/pool_map.h"

namespace trepak {
namespace {

using Clock = std::chrono::steady_clock;

// Of what is given back to the system.
constexpr size_t kPiece = size_t{1} << 18;
// For a copy under way: the disk of a whole step, as elsewhere.
constexpr auto kPatience = std::chrono::minutes(10);
// For what other threads free, or have leave, when their kernels end. Who runs, or would if the
// machine had a processor left, gets more.
constexpr auto kGrace = std::chrono::seconds(1);
constexpr auto kKernelPatience = std::chrono::seconds(60);

size_t PiecesOf(size_t bytes) { return (bytes + kPiece - 1) / kPiece; }

// Whole pieces: what is behind the last one is not given back.
size_t AddressesOf(const Placement& placement) { return PiecesOf(placement.offsets()) * kPiece; }

}  // namespace

Status MemoryPool::Make(const PoolOptions& options, std::unique_ptr<MemoryPool>* made) {
  if (options.limit <= options.beta) {
    return InvalidArgumentError("a pool of " + std::to_string(options.limit) +
                                " bytes has no room beside beta, " + std::to_string(options.beta));
  }
  std::unique_ptr<MemoryPool> pool(new MemoryPool(options));
  const size_t addresses = AddressesOf(*pool->placement_);
  void* const base = mmap(nullptr, addresses, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return ResourceExhaustedError(
        "addresses for a pool of " + std::to_string(options.limit) +
        " bytes can't be reserved: " + std::generic_category().message(errno));
  }
  pool->base_ = static_cast<char*>(base);
  *made = std::move(pool);
  return OkStatus();
}

MemoryPool::MemoryPool(const PoolOptions& options)
    : options_(options),
      placement_(Placement::Make(
          options.kind, options.limit - (options.finds_limit ? 0 : options.beta), options.limit)),
      beta_(options.beta),
      reserve_(options.finds_limit ? 0 : options.beta),
      finds_limit_(options.finds_limit),
      is_resident_(PiecesOf(placement_->offsets())) {
  figures_.limit = options.limit;
}

MemoryPool::~MemoryPool() {
  if (base_ != nullptr) {
    (void)munmap(base_, AddressesOf(*placement_));
  }
}

void* MemoryPool::Allocate(const Placement::Request& request, Patience patience) {
  if (request.bytes < kSmall) {
    return TakeSmall(request.bytes);
  }
  while (true) {
    const int64_t releases = relief_ == nullptr ? 0 : relief_->releases();
    int64_t frees = 0;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      void* memory = Place(request);
      while (memory == nullptr && patience == Patience::kWait && CommitBeta(request.bytes)) {
        memory = Place(request);
      }
      if (memory != nullptr || patience == Patience::kTry) {
        return memory;
      }
      frees = frees_;
    }
    if (patience == Patience::kScratch) {
      return TakeOutside(request.bytes);
    }
    if (!Wait(releases, frees)) {
      std::lock_guard<std::mutex> lock(mutex_);
      void* const memory = Place(request);  // what is small may have been freed
      figures_.failures += memory == nullptr ? 1 : 0;
      return memory;
    }
  }
}

void* MemoryPool::Place(const Placement::Request& request) {
  // What is small takes from the same limit. Holes cost nothing, so they are of use at any time.
  const size_t limit = placement_->limit();
  const size_t left = limit - std::min(limit, figures_.small);
  (void)placement_->Lower(std::max(left, placement_->figures().extent));
  const double fragmentation = placement_->FragmentationFor(request.bytes);
  const auto offset = placement_->Allocate(request);
  (void)placement_->Grow(limit - placement_->limit());
  if (!offset) {
    return nullptr;
  }
  ++figures_.allocations;
  last_bytes_ = request.bytes;
  fragmentation_sum_ += fragmentation;
  ++fragmentation_of_;
  figures_.worst_fragmentation = std::max(figures_.worst_fragmentation, fragmentation);
  Record();
  Touch(*offset, request.bytes);
  return base_ + *offset;
}

void* MemoryPool::TakeSmall(size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlignment, std::max<size_t>(bytes, 1)) != 0) {
    return nullptr;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  figures_.small += malloc_usable_size(memory);
  Record();
  return memory;
}

void* MemoryPool::TakeOutside(size_t bytes) {
  void* memory = nullptr;
  // Larger than what is small, so that Free can tell them apart.
  if (posix_memalign(&memory, kAlignment, std::max(bytes, 2 * kSmall)) != 0) {
    return nullptr;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  figures_.outside += malloc_usable_size(memory);
  figures_.peak_outside = std::max(figures_.peak_outside, figures_.outside);
  return memory;
}

bool MemoryPool::CommitBeta(size_t bytes) {
  const size_t more = std::min(reserve_, std::max(beta_, bytes));
  if (more == 0 || !placement_->Grow(more)) {
    return false;
  }
  reserve_ -= more;
  figures_.limit = std::max(figures_.limit, placement_->limit());
  ++figures_.shortages;
  return true;
}

void MemoryPool::Fit() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!std::exchange(finds_limit_, false)) {
    return;
  }
  beta_ = beta_ > 0 ? beta_ : peak_extent_ / kBetaPart;
  (void)placement_->Lower(peak_extent_ + beta_);
  reserve_ = options_.limit - placement_->limit();
  figures_.limit = placement_->limit();
  GiveBack();
}

bool MemoryPool::Wait(int64_t releases, int64_t frees) {
  const auto began = Clock::now();
  const auto is_released = [&] {
    return relief_ != nullptr && relief_->WaitForRelease(Clock::now() + kPatience, releases);
  };
  const auto is_freed = [&] {
    std::unique_lock<std::mutex> lock(mutex_);
    return freed_.wait_for(lock, kGrace, [&] { return frees_ != frees; });
  };
  bool may_have_room = is_released();
  const auto until = Clock::now() + kKernelPatience;
  for (bool others_run = true; !may_have_room && others_run && Clock::now() < until;) {
    may_have_room = is_freed();
    others_run = OtherThreadsRun();
    // Asked last: who ran until now may have had more leave.
    may_have_room = may_have_room || is_released();
  }
  std::lock_guard<std::mutex> lock(mutex_);
  ++figures_.waits;
  figures_.waited_seconds += std::chrono::duration<double>(Clock::now() - began).count();
  return may_have_room;
}

void MemoryPool::Free(void* memory) {
  if (memory == nullptr) {
    return;
  }
  std::unique_lock<std::mutex> lock(mutex_);
  if (!Owns(memory)) {
    const size_t bytes = malloc_usable_size(memory);
    (bytes < 2 * kSmall ? figures_.small : figures_.outside) -= bytes;
    Record();
    lock.unlock();
    free(memory);
    return;
  }
  const auto offset = static_cast<size_t>(static_cast<char*>(memory) - base_);
  if (!placement_->Free(offset)) {
    std::abort();  // freed twice: memory of another tensor would be given out
  }
  ++frees_;
  Record();
  freed_.notify_all();
}

void MemoryPool::Touch(size_t offset, size_t bytes) {
  const size_t end = PiecesOf(offset + bytes);
  for (size_t piece = offset / kPiece; piece < end; ++piece) {
    resident_pieces_ += is_resident_[piece] ? 0 : 1;
    is_resident_[piece] = true;
  }
  // Each region may end within a piece.
  constexpr size_t kRegionEnds = 4;
  if (resident_pieces_ > PiecesOf(figures_.limit) + kRegionEnds) {
    GiveBack();
  }
}

void MemoryPool::GiveBack() {
  std::vector<bool> is_live(is_resident_.size());
  for (const Placement::Block& block : placement_->Map()) {
    if (block.is_live) {
      std::fill(is_live.begin() + static_cast<ptrdiff_t>(block.offset / kPiece),
                is_live.begin() + static_cast<ptrdiff_t>(PiecesOf(block.offset + block.bytes)),
                true);
    }
  }
  for (size_t piece = 0; piece < is_live.size(); ++piece) {
    if (is_resident_[piece] && !is_live[piece]) {
      (void)madvise(base_ + piece * kPiece, kPiece, MADV_DONTNEED);
      is_resident_[piece] = false;
      --resident_pieces_;
    }
  }
}

PoolFigures MemoryPool::figures() const {
  std::lock_guard<std::mutex> lock(mutex_);
  PoolFigures figures = figures_;
  const Placement::Figures& placed = placement_->figures();
  figures.live = placed.live + figures.small;
  figures.occupied = placed.occupied + figures.small;
  figures.fragmentation = last_bytes_ == 0 ? 0 : placement_->FragmentationFor(last_bytes_);
  figures.beta = options_.finds_limit ? 0 : reserve_;
  if (fragmentation_of_ > 0) {
    figures.mean_fragmentation = fragmentation_sum_ / static_cast<double>(fragmentation_of_);
  }
  return figures;
}

size_t MemoryPool::live() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return placement_->figures().live + figures_.small;
}

std::string MemoryPool::Map() const {
  const PoolFigures now = figures();
  std::lock_guard<std::mutex> lock(mutex_);
  return DescribePool(now, placement_->Map());
}

}  // namespace trepak
