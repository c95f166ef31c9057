#include "ops/dymem.h"

#include <atomic>
#include <utility>

namespace trepak {
namespace {

std::atomic<Dymem*> global{nullptr};

}  // namespace

Dymem::Dymem(const DymemOptions& options, std::unique_ptr<MemoryPool> pool,
             std::unique_ptr<SwapTier> tier)
    : options_(options),
      pool_(std::move(pool)),
      engine_(std::make_unique<SwapEngine>(std::move(tier), SwapOptions{options.checksums})),
      trace_(options.traces ? std::make_unique<DymemTrace>() : nullptr) {
  pool_->set_relief(this);
}

Dymem* Dymem::Make(const DymemOptions& options, std::unique_ptr<MemoryPool> pool,
                   std::unique_ptr<SwapTier> tier) {
  auto* const made = new Dymem(options, std::move(pool), std::move(tier));
  global.store(made);
  return made;
}

Dymem* Dymem::Global() { return global.load(); }

bool Dymem::WaitForRelease(std::chrono::steady_clock::time_point deadline, int64_t releases) {
  while (!engine_->WaitForRelease(deadline, releases)) {
    if (std::chrono::steady_clock::now() >= deadline || !unread_.EvictLast()) {
      return false;
    }
  }
  return true;
}

size_t Dymem::needed() const { return pool_->live() + engine_->tier().used(); }

bool Dymem::Keeps(int64_t step) {
  if (options_.traces) {
    return true;
  }
  if (options_.always_swaps || options_.policy != SwapPolicy::kDymem) {
    return false;
  }
  return gate_.Keeps(step, needed(), pool_->limit() - options_.pool.beta);
}

void Dymem::AddPlan(DymemPlan plan, const std::unordered_map<std::string, TensorGroup>& groups,
                    const std::vector<std::string>& blind) {
  std::lock_guard<std::mutex> lock(mutex_);
  plans_.push_back(std::move(plan));
  for (const auto& [node, group] : groups) {
    groups_[node] = group;
  }
  blind_.insert(blind.begin(), blind.end());
}

std::vector<DymemPlan> Dymem::plans() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return plans_;
}

TensorGroup Dymem::GroupOf(const std::string& node) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = groups_.find(node);
  return found == groups_.end() ? TensorGroup() : found->second;
}

void Dymem::Doom(int64_t step, const std::string& node, size_t bytes) {
  if (step == kNoStep) {
    return;  // it would doom all others that belong to none
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (doomed_step_ == step && !doom_.ok()) {
    return;  // the first one is what matters
  }
  doomed_step_ = step;
  doom_ = ResourceExhaustedError("the output of '" + node + "', " + std::to_string(bytes) +
                                 " bytes, finds no room in Dymem's pool of " +
                                 std::to_string(options_.pool.limit) +
                                 " bytes: give it more, or train with a smaller batch");
}

Status Dymem::DoomOf(int64_t step) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return doomed_step_ == step ? doom_ : OkStatus();
}

bool Dymem::IsBlind(const std::string& node) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return blind_.count(node) > 0;
}

}  // namespace trepak
