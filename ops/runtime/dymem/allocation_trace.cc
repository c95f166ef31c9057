#include "ops/runtime/dymem/allocation_trace.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace trepak {
namespace {

// Whether a node may use the memory of its input depends on who else reads it just then, so that
// traces differ a little: by at most this part of all that is asked for.
constexpr size_t kStrangePart = 16;

using Key = std::tuple<std::string, bool, int>;  // node, scratch, which of these

// Of what is asked for in the step.
std::vector<Key> KeysOf(const AllocationTrace& trace) {
  std::map<std::pair<std::string, bool>, int> turns;
  std::vector<Key> keys;
  for (size_t number = static_cast<size_t>(trace.before); number < trace.blocks.size(); ++number) {
    const AllocationTrace::Block& block = trace.blocks[number];
    const int turn = turns[{block.node, block.is_scratch}]++;
    keys.emplace_back(block.node, block.is_scratch, turn);
  }
  return keys;
}

}  // namespace

void AllocationRecorder::Allocated(const void* memory, const std::string& node, size_t bytes,
                                   bool is_scratch) {
  std::lock_guard<std::mutex> lock(mutex_);
  const int block = static_cast<int>(all_.size());
  blocks_[memory] = block;
  all_.push_back({node, bytes, is_scratch, {}});
  if (records_) {
    events_.push_back({block, false});
  }
}

void AllocationRecorder::Freed(const void* memory) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = blocks_.find(memory);
  if (found == blocks_.end()) {
    return;
  }
  if (records_) {
    events_.push_back({found->second, true});
  }
  blocks_.erase(found);
}

void AllocationRecorder::Swapped(const void* memory, const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = blocks_.find(memory);
  if (found != blocks_.end()) {
    all_[found->second].swapped.push_back(name);
  }
}

void AllocationRecorder::Begin() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<int*> numbers;
  for (auto& [memory, block] : blocks_) {
    numbers.push_back(&block);
  }
  // As they came: addresses differ from run to run.
  std::sort(numbers.begin(), numbers.end(), [](const int* a, const int* b) { return *a < *b; });
  std::vector<AllocationTrace::Block> living;
  for (int* const number : numbers) {
    living.push_back(std::move(all_[*number]));
    living.back().swapped.clear();
    *number = static_cast<int>(living.size()) - 1;
  }
  all_ = std::move(living);
  before_ = static_cast<int>(all_.size());
  events_.clear();
  records_ = true;
}

AllocationTrace AllocationRecorder::End(int64_t batch) {
  std::lock_guard<std::mutex> lock(mutex_);
  records_ = false;
  return {batch, all_, before_, std::exchange(events_, {})};
}

Status Extrapolate(const AllocationTrace& small, const AllocationTrace& large, int64_t batch,
                   AllocationTrace* made) {
  if (small.batch >= large.batch) {
    return InvalidArgumentError("two traces need two batches, the smaller one first");
  }
  std::map<Key, size_t> bytes_of;
  const std::vector<Key> small_keys = KeysOf(small);
  for (size_t key = 0; key < small_keys.size(); ++key) {
    bytes_of[small_keys[key]] = small.blocks[static_cast<size_t>(small.before) + key].bytes;
  }
  *made = large;
  made->batch = batch;
  const double samples = static_cast<double>(batch - small.batch);
  const double between = static_cast<double>(large.batch - small.batch);
  size_t all = 0;
  size_t unmatched = 0;
  const std::vector<Key> keys = KeysOf(large);
  for (size_t key = 0; key < keys.size(); ++key) {
    AllocationTrace::Block& block = made->blocks[static_cast<size_t>(large.before) + key];
    all += block.bytes;
    const auto found = bytes_of.find(keys[key]);
    if (found == bytes_of.end()) {
      unmatched += block.bytes;
      continue;
    }
    const double first = static_cast<double>(found->second);
    const double grown = (static_cast<double>(block.bytes) - first) * samples / between;
    block.bytes = static_cast<size_t>(std::max(0.0, first + grown));
  }
  return unmatched <= all / kStrangePart
             ? OkStatus()
             : FailedPreconditionError(
                   "the steps of two batches differ: of " + std::to_string(all) + " bytes, " +
                   std::to_string(unmatched) + " are asked for by the one with a batch of " +
                   std::to_string(large.batch) + " alone");
}

}  // namespace trepak
