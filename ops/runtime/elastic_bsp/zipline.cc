#include "ops/runtime/elastic_bsp/zipline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

namespace trepak {
namespace {

struct End {
  double time;
  uint32_t worker;
};

// Ends in the order of time (the paper's Ω), and of workers where times are equal. Kept as numbers
// of values, since pages that are touched first take longer than the search.
class InOrder {
 public:
  // Those that are not after `until`; there must be one.
  InOrder(const EndTimes& ends, double until);

  size_t size() const { return order_.size(); }
  End operator[](size_t place) const {
    const uint32_t number = order_[place];
    return {values_[number], worker_of(number)};
  }

 private:
  static constexpr size_t kEndsOfPart = 2;  // on average

  // number / iterations, by a product: on some processors a division of integers takes much longer.
  // Half an iteration is more than it can be wrong by.
  uint32_t worker_of(uint32_t number) const {
    return static_cast<uint32_t>((number + 0.5) * per_iteration_);
  }

  const double* const values_;
  const double per_iteration_;
  std::vector<uint32_t> order_;
};

// Ends spread over their time quite evenly, so each goes to the part of it that it is in, and parts
// of more than one end are sorted: mostly linear, and O(Rn log Rn) at worst.
InOrder::InOrder(const EndTimes& ends, double until)
    : values_(ends.values), per_iteration_(1.0 / static_cast<double>(ends.iterations)) {
  double first = until;
  double last = std::numeric_limits<double>::lowest();
  std::vector<uint32_t> counts(ends.workers);  // by worker, of those that are taken
  for (size_t worker = 0; worker < ends.workers; ++worker) {
    const double* const theirs = ends.of(worker);
    const double* const after = std::upper_bound(theirs, theirs + ends.iterations, until);
    counts[worker] = static_cast<uint32_t>(after - theirs);
    first = std::min(first, theirs[0]);
    last = after == theirs ? last : std::max(last, after[-1]);
  }
  order_.resize(std::accumulate(counts.begin(), counts.end(), size_t{0}));
  const size_t parts = order_.size() / kEndsOfPart + 1;
  const double half = last / 2 - first / 2;  // of all the time; all of it might overflow
  const double parts_per_half = static_cast<double>(parts) / half;
  const auto part_of = [&](double time) {
    const double place = (time / 2 - first / 2) * parts_per_half;
    return place < static_cast<double>(parts) ? static_cast<size_t>(place) : parts - 1;
  };
  const auto for_each = [&](const auto& take) {
    for (size_t worker = 0; worker < ends.workers; ++worker) {
      const auto begin = static_cast<uint32_t>(worker * ends.iterations);
      for (uint32_t number = begin; number < begin + counts[worker]; ++number) {
        take(number);
      }
    }
  };
  std::vector<uint32_t> places(parts + 1, 0);
  for_each([&](uint32_t number) { ++places[part_of(values_[number]) + 1]; });
  std::partial_sum(places.begin(), places.end(), places.begin());
  for_each([&](uint32_t number) {
    order_[places[part_of(values_[number])]++] = number;  // a part's place becomes the next one's
  });
  uint32_t begin = 0;
  for (size_t part = 0; part < parts; ++part) {
    if (places[part] - begin > 1) {
      std::sort(order_.begin() + begin, order_.begin() + places[part],
                [values = values_](uint32_t a, uint32_t b) {
                  return values[a] < values[b] || (values[a] == values[b] && a < b);
                });
    }
    begin = places[part];
  }
}

// Returns a time after which no set is the best. The worker whose last end is the earliest, L, is
// in a set with L or an earlier end, so one that ends at e has at least e - L to wait. When all
// have come to their first end from L on, at C, there is one with C - L at most.
double LastThatMayMatter(const EndTimes& ends) {
  double earliest = std::numeric_limits<double>::infinity();
  for (size_t worker = 0; worker < ends.workers; ++worker) {
    earliest = std::min(earliest, ends.of(worker)[ends.iterations - 1]);
  }
  double last = earliest;
  for (size_t worker = 0; worker < ends.workers; ++worker) {
    const double* const theirs = ends.of(worker);
    last = std::max(last, *std::lower_bound(theirs, theirs + ends.iterations, earliest));
  }
  return last;
}

// Keeps the best of the combinations that it is shown: which iteration of each worker.
class Best {
 public:
  explicit Best(const EndTimes& ends) : ends_(ends) {}

  // `chosen`: by worker, the number of an iteration from 0 on.
  void Consider(const std::vector<uint32_t>& chosen) {
    double first = std::numeric_limits<double>::infinity();
    double last = -first;
    for (size_t worker = 0; worker < chosen.size(); ++worker) {
      const double end = ends_.of(worker)[chosen[worker]];
      first = std::min(first, end);
      last = std::max(last, end);
    }
    const double waiting = last - first;
    if (barrier_.iterations.empty() || waiting < barrier_.waiting_time ||
        (waiting == barrier_.waiting_time && last < barrier_.barrier_time)) {
      barrier_ = {waiting, last, chosen};
    }
  }

  Barrier Take() {
    for (uint32_t& iteration : barrier_.iterations) {
      ++iteration;  // a number becomes a count
    }
    return std::move(barrier_);
  }

 private:
  const EndTimes& ends_;
  Barrier barrier_;
};

// Shows `best` the nearest ends to each one of `designated`.
void ScanFrom(const EndTimes& ends, size_t designated, Best* best) {
  std::vector<uint32_t> chosen(ends.workers);
  for (uint32_t i = 0; i < ends.iterations; ++i) {
    const double end = ends.of(designated)[i];
    for (size_t worker = 0; worker < ends.workers; ++worker) {
      const double* const theirs = ends.of(worker);
      const double* const nearest = std::min_element(
          theirs, theirs + ends.iterations,
          [end](double a, double b) { return std::abs(a - end) < std::abs(b - end); });
      chosen[worker] = static_cast<uint32_t>(nearest - theirs);
    }
    chosen[designated] = i;
    best->Consider(chosen);
  }
}

}  // namespace

Status CheckEndTimes(const EndTimes& ends) {
  if (ends.workers == 0 || ends.iterations == 0) {
    return InvalidArgumentError("there must be at least one iteration of one worker, found " +
                                std::to_string(ends.workers) + " workers with " +
                                std::to_string(ends.iterations) + " iterations");
  }
  if (ends.workers > std::numeric_limits<uint32_t>::max() / ends.iterations) {
    return InvalidArgumentError("more than 2³² iterations are too many: look less far ahead");
  }
  for (size_t worker = 0; worker < ends.workers; ++worker) {
    const double* const theirs = ends.of(worker);
    for (size_t i = 0; i < ends.iterations; ++i) {
      if (!std::isfinite(theirs[i]) || (i > 0 && theirs[i] < theirs[i - 1])) {
        return InvalidArgumentError("iteration " + std::to_string(i) + " of worker " +
                                    std::to_string(worker) + " ends at " +
                                    std::to_string(theirs[i]) +
                                    ", which must be finite and not before the one before it");
      }
    }
  }
  return OkStatus();
}

Barrier ZipLine(const EndTimes& ends) {
  const InOrder all(ends, LastThatMayMatter(ends));
  // The set is what a window over all ends has in it, since whoever ends again leaves it with its
  // earlier end: the first one in it is the latest of its worker, and no other's is earlier.
  std::vector<uint32_t> in_window(ends.workers, 0);  // ends, by worker
  size_t present = 0;                                // workers
  size_t first = 0;
  size_t until = 0;
  Barrier best;
  for (size_t i = 0; i < all.size(); ++i) {
    const End end = all[i];
    present += in_window[end.worker]++ == 0 ? 1 : 0;
    while (in_window[all[first].worker] > 1) {
      --in_window[all[first++].worker];
    }
    const double waiting = end.time - all[first].time;
    if (present == ends.workers && (until == 0 || waiting < best.waiting_time)) {
      best.waiting_time = waiting;
      best.barrier_time = end.time;
      until = i + 1;
    }
  }
  best.iterations.assign(ends.workers, 0);
  for (size_t i = 0; i < until; ++i) {
    ++best.iterations[all[i].worker];
  }
  return best;
}

Barrier ZipLineOfPaper(const EndTimes& ends) {
  const InOrder all(ends, std::numeric_limits<double>::infinity());
  std::vector<End> set;  // the paper's Z, in the order of time
  std::vector<End> chosen;
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < all.size(); ++i) {
    const End end = all[i];
    const auto duplicate = std::find_if(
        set.begin(), set.end(), [&end](const End& other) { return other.worker == end.worker; });
    if (duplicate != set.end()) {
      set.erase(duplicate);
    }
    set.push_back(end);
    if (set.size() == ends.workers &&
        (chosen.empty() || set.back().time - set.front().time < least)) {
      least = set.back().time - set.front().time;
      chosen = set;
    }
  }
  Barrier best{least, chosen.back().time, std::vector<uint32_t>(ends.workers)};
  for (const End& end : chosen) {
    const double* const theirs = ends.of(end.worker);
    best.iterations[end.worker] = static_cast<uint32_t>(
        std::lower_bound(theirs, theirs + ends.iterations, end.time) - theirs + 1);
  }
  return best;
}

Barrier GridScan(const EndTimes& ends) {
  size_t first = 0;
  for (size_t worker = 1; worker < ends.workers; ++worker) {
    first = *ends.of(worker) < *ends.of(first) ? worker : first;
  }
  Best best(ends);
  ScanFrom(ends, first, &best);
  return best.Take();
}

Barrier FullGridScan(const EndTimes& ends) {
  Best best(ends);
  for (size_t worker = 0; worker < ends.workers; ++worker) {
    ScanFrom(ends, worker, &best);
  }
  return best.Take();
}

Barrier NaiveSearch(const EndTimes& ends) {
  Best best(ends);
  std::vector<uint32_t> chosen(ends.workers, 0);
  while (true) {
    best.Consider(chosen);
    size_t worker = 0;  // the next combination, as an odometer goes on
    while (worker < ends.workers && ++chosen[worker] == ends.iterations) {
      chosen[worker++] = 0;
    }
    if (worker == ends.workers) {
      return best.Take();
    }
  }
}

}  // namespace trepak
