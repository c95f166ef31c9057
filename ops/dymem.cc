#include "ops/dymem.h"

#include <atomic>
#include <cstdio>
#include <utility>

namespace trepak {
namespace {

std::atomic<Dymem*> global{nullptr};

}  // namespace

Dymem::Dymem(const DymemOptions& options, std::unique_ptr<MemoryPool> pool,
             std::unique_ptr<SwapTier> tier)
    : options_(options),
      pool_(std::move(pool)),
      engine_(std::make_unique<SwapEngine>(
          std::move(tier), SwapOptions{options.checksums, options.link_bytes_per_second,
                                       options.link_bytes_per_second})),
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
  const auto waits = waits_.Wait();
  while (!engine_->WaitForRelease(deadline, releases)) {
    if (std::chrono::steady_clock::now() >= deadline) {
      return false;
    }
    // What is on its way back may leave again once it has come, which it may have just now.
    if (!unread_.EvictLast() && !engine_->WaitForFetch(deadline) && !unread_.EvictLast()) {
      return false;
    }
  }
  return true;
}

size_t Dymem::needed() const { return pool_->live() + engine_->tier().used(); }

void Dymem::AddPlan(DymemPlan plan, const std::unordered_map<std::string, TensorGroup>& groups,
                    const std::vector<std::string>& blind) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const DymemPlan& known : plans_) {
    if (known.graph == plan.graph && known.layers == 0 && plan.layers == 0) {
      return;  // Grappler calls twice, and this graph has no mark
    }
  }
  if (!plan.left_alone.empty() && !has_left_alone_) {
    has_left_alone_ = true;
    std::fprintf(
        stderr,
        "trepak: Dymem leaves %s of the graph '%s' alone: what they make stays in the "
        "pool. Unroll loops whose feature maps are large; steps_per_execution above 1 is a "
        "loop around the whole step.\n",
        plan.left_alone.c_str(), plan.graph.c_str());
  }
  plans_.push_back(std::move(plan));
  std::unique_lock<std::shared_mutex> nodes_lock(nodes_mutex_);
  for (const auto& [node, group] : groups) {
    nodes_[*names_.insert(node).first].group = group;
  }
  for (const std::string& node : blind) {
    nodes_[*names_.insert(node).first].is_blind = true;
  }
}

std::vector<DymemPlan> Dymem::plans() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return plans_;
}

NodeFacts Dymem::FactsOf(std::string_view node) const {
  std::shared_lock<std::shared_mutex> lock(nodes_mutex_);
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? NodeFacts() : found->second;
}

void Dymem::Doom(int64_t step, std::string_view node, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (step != kNoStep && doomed_step_ == step) {
    return;  // the first one is what matters
  }
  shortage_ = (node.empty() ? "a tensor" : "the output of '" + std::string(node) + "'") + ", " +
              std::to_string(bytes) + " bytes, finds no room in Dymem's pool of " +
              std::to_string(pool_->limit()) +
              " bytes: give it more, or train with a smaller batch. " + WhyNothingLeft() +
              pool_->Map();
  std::fprintf(stderr, "trepak: %s\n", shortage_.c_str());
  if (step != kNoStep) {  // else it would doom all others that belong to none
    doomed_step_ = step;
    doom_ = ResourceExhaustedError(shortage_);
  }
}

std::string Dymem::WhyNothingLeft() const {
  const Status failure = engine_->first_failure();
  return failure.ok()
             ? ""
             : "Not all could leave (" + std::string(failure.message()) + "): give 'beyond' more. ";
}

std::string Dymem::TakeShortage() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(shortage_, "");
}

Status Dymem::DoomOf(int64_t step) const {
  if (step == kNoStep || doomed_step_.load(std::memory_order_acquire) != step) {
    return OkStatus();
  }
  std::lock_guard<std::mutex> lock(mutex_);
  return doomed_step_ == step ? doom_ : OkStatus();
}

}  // namespace trepak
