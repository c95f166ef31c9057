#include "ops/runtime/parameters/variable_table.h"

#include <algorithm>
#include <chrono>
#include <mutex>

namespace trepak {

Status VariableTable::Add(const Variable& variable) {
  if (!CanAdd(variable.type)) {
    return InvalidArgumentError("the variable " + variable.name +
                                " has no elements that can be summed");
  }
  std::unique_lock<std::shared_mutex> lock(mutex_);
  const auto [found, is_new] = entries_.try_emplace(variable.key);
  Variable& known = found->second.variable;
  if (!is_new && (known.type != variable.type || known.elements != variable.elements)) {
    return AlreadyExistsError("variable " + std::to_string(variable.key) + " is " + known.name +
                              " with " + std::to_string(known.elements) +
                              " elements; it can't be " + variable.name + " with " +
                              std::to_string(variable.elements));
  }
  known = variable;
  return OkStatus();
}

std::optional<Variable> VariableTable::Find(uint32_t key) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto found = entries_.find(key);
  return found == entries_.end() ? std::nullopt : std::optional(found->second.variable);
}

Status VariableTable::Place(uint32_t key, const VariablePlace& place) {
  std::unique_lock<std::shared_mutex> lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) {
    return NotFoundError("variable " + std::to_string(key) + " is not known");
  }
  VariablePlace& known = found->second.place;
  if (known.layer != 0 &&
      (known.layer != place.layer || known.fully_connected != place.fully_connected)) {
    return AlreadyExistsError("the variable " + found->second.variable.name + " is in layer " +
                              std::to_string(known.layer) + ", it can't be in layer " +
                              std::to_string(place.layer));
  }
  known = place;
  layers_ = std::max(layers_, place.layer);
  return OkStatus();
}

Status VariableTable::SetThresholds(const std::vector<double>& thresholds) {
  if (!std::is_sorted(thresholds.rbegin(), thresholds.rend())) {
    return InvalidArgumentError("the thresholds of priorities must fall, from the highest on");
  }
  std::unique_lock<std::shared_mutex> lock(mutex_);
  coarse_ = false;
  thresholds_ = thresholds;
  return OkStatus();
}

void VariableTable::SetCoarse() {
  std::unique_lock<std::shared_mutex> lock(mutex_);
  coarse_ = true;
}

uint8_t VariableTable::PriorityOf(uint32_t key) {
  const auto begin = std::chrono::steady_clock::now();
  std::ptrdiff_t priority = 0;
  {
    std::shared_lock<std::shared_mutex> lock(mutex_);
    const VariablePlace place = PlaceOf(key);
    if (coarse_) {
      priority = place.fully_connected ? 1 : 0;
    } else if (place.layer != 0) {
      const double urgency = 1.0 - static_cast<double>(place.layer) / layers_;
      const auto above = std::find_if(thresholds_.begin(), thresholds_.end(),
                                      [&](double threshold) { return urgency > threshold; });
      priority = above - thresholds_.begin();
    }
  }
  const std::chrono::nanoseconds spent = std::chrono::steady_clock::now() - begin;
  lookup_nanoseconds_.fetch_add(static_cast<uint64_t>(spent.count()), std::memory_order_relaxed);
  return static_cast<uint8_t>(priority);
}

int VariableTable::LayerOf(uint32_t key) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  return PlaceOf(key).layer;
}

VariablePlace VariableTable::PlaceOf(uint32_t key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? VariablePlace() : found->second.place;
}

}  // namespace trepak
