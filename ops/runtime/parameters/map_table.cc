#include "ops/runtime/parameters/map_table.h"

#include <algorithm>
#include <chrono>
#include <mutex>

namespace trepak {

Status MapTable::Record(const std::string& name, const ParameterPlace& place) {
  std::unique_lock<std::shared_mutex> lock(mutex_);
  const auto [found, is_new] = places_.emplace(name, place);
  if (!is_new && (found->second.layer != place.layer ||
                  found->second.fully_connected != place.fully_connected)) {
    return AlreadyExistsError("the parameter " + name + " was recorded in layer " +
                              std::to_string(found->second.layer) + " before, now in layer " +
                              std::to_string(place.layer) + ": give variables names of their own");
  }
  if (place.layer > layers_) {
    layers_ = place.layer;
    entries_.clear();  // all urgencies have changed
  }
  return OkStatus();
}

Status MapTable::SetThresholds(const std::vector<double>& thresholds) {
  if (!std::is_sorted(thresholds.rbegin(), thresholds.rend())) {
    return InvalidArgumentError("the thresholds of priorities must fall, from the highest on");
  }
  std::unique_lock<std::shared_mutex> lock(mutex_);
  coarse_ = false;
  thresholds_ = thresholds;
  entries_.clear();
  return OkStatus();
}

void MapTable::SetCoarse() {
  std::unique_lock<std::shared_mutex> lock(mutex_);
  coarse_ = true;
  entries_.clear();
}

uint8_t MapTable::PriorityOf(const std::string& name) {
  const auto begin = std::chrono::steady_clock::now();
  const auto spent = [&] {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                                begin)
        .count();
  };
  {
    std::shared_lock<std::shared_mutex> lock(mutex_);
    const auto found = entries_.find(name);
    if (found != entries_.end()) {
      lookup_nanoseconds_.fetch_add(spent(), std::memory_order_relaxed);
      return found->second;
    }
  }
  std::unique_lock<std::shared_mutex> lock(mutex_);
  const uint8_t priority = entries_.emplace(name, Assign(name)).first->second;
  lookup_nanoseconds_.fetch_add(spent(), std::memory_order_relaxed);
  return priority;
}

int MapTable::LayerOf(const std::string& name) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto place = places_.find(name);
  return place == places_.end() ? 0 : place->second.layer;
}

double MapTable::UrgencyOf(const std::string& name) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto place = places_.find(name);
  return place == places_.end() ? 1.0 : Urgency(place->second);
}

double MapTable::Urgency(const ParameterPlace& place) const {
  return 1.0 - static_cast<double>(place.layer) / std::max(1, layers_);
}

uint8_t MapTable::Assign(const std::string& name) const {
  const auto place = places_.find(name);
  if (place == places_.end()) {
    return 0;
  }
  if (coarse_) {
    return place->second.fully_connected ? 1 : 0;
  }
  const double urgency = Urgency(place->second);
  const auto above = std::find_if(thresholds_.begin(), thresholds_.end(),
                                  [&](double threshold) { return urgency > threshold; });
  return static_cast<uint8_t>(above - thresholds_.begin());
}

}  // namespace trepak
