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
      engine_(std::make_unique<SwapEngine>(std::move(tier), SwapOptions{options.checksums})) {
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

void Dymem::AddPlan(DymemPlan plan, const std::unordered_map<std::string, TensorGroup>& groups,
                    const std::vector<std::string>& blind) {
  std::lock_guard<std::mutex> lock(mutex_);
  plans_.push_back(std::move(plan));
  const Nodes* const before = latest_nodes_.load();
  auto nodes = before == nullptr ? std::make_unique<Nodes>() : std::make_unique<Nodes>(*before);
  for (const auto& [node, group] : groups) {
    (*nodes)[*names_.insert(node).first].group = group;
  }
  for (const std::string& node : blind) {
    (*nodes)[*names_.insert(node).first].is_blind = true;
  }
  latest_nodes_.store(nodes.get());
  nodes_.push_back(std::move(nodes));
}

std::vector<DymemPlan> Dymem::plans() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return plans_;
}

NodeFacts Dymem::FactsOf(std::string_view node) const {
  const Nodes* const nodes = latest_nodes_.load(std::memory_order_acquire);
  if (nodes == nullptr) {
    return {};
  }
  const auto found = nodes->find(node);
  return found == nodes->end() ? NodeFacts() : found->second;
}

void Dymem::Doom(int64_t step, std::string_view node, size_t bytes) {
  if (step == kNoStep) {
    return;  // it would doom all others that belong to none
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (doomed_step_ == step && !doom_.ok()) {
    return;  // the first one is what matters
  }
  doom_ = ResourceExhaustedError(
      "the output of '" + std::string(node) + "', " + std::to_string(bytes) +
      " bytes, finds no room in Dymem's pool of " + std::to_string(options_.pool.limit) +
      " bytes: give it more, or train with a smaller batch");
  doomed_step_ = step;
}

Status Dymem::DoomOf(int64_t step) const {
  if (doomed_step_.load(std::memory_order_acquire) != step) {
    return OkStatus();
  }
  std::lock_guard<std::mutex> lock(mutex_);
  return doomed_step_ == step ? doom_ : OkStatus();
}

}  // namespace trepak
