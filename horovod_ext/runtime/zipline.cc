#include "horovod_ext/runtime/zipline.h"

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

// All ends in the order of time (the paper's Ω), and of workers where times are equal. Kept as
// numbers of values, since pages that are touched first take longer than the search.
class InOrder {
 public:
  explicit InOrder(const EndTimes& ends);

  size_t size() const { return order_.size(); }
  End operator[](size_t place) const {
    const uint32_t number = order_[place];
    return {values_[number], number / iterations_};
  }

 private:
  static constexpr size_t kEndsOfPart = 4;  // on average

  const double* const values_;
  const uint32_t iterations_;
  std::vector<uint32_t> order_;
};

// Ends spread over their time quite evenly, so each goes to the part of it that it is in, and parts
// of more than one end are sorted: mostly linear, and O(Rn log Rn) at worst.
InOrder::InOrder(const EndTimes& ends)
    : values_(ends.values),
      iterations_(static_cast<uint32_t>(ends.iterations)),
      order_(ends.workers * ends.iterations) {
  double first = values_[0];
  double last = first;
  for (size_t worker = 0; worker < ends.workers; ++worker) {
    first = std::min(first, ends.of(worker)[0]);
    last = std::max(last, ends.of(worker)[ends.iterations - 1]);
  }
  const size_t parts = order_.size() / kEndsOfPart + 1;
  const double half = last / 2 - first / 2;  // of all the time; all of it might overflow
  const double parts_per_half = static_cast<double>(parts) / half;
  const auto part_of = [&](double time) {
    const double place = (time / 2 - first / 2) * parts_per_half;
    return place < static_cast<double>(parts) ? static_cast<size_t>(place) : parts - 1;
  };
  std::vector<uint32_t> places(parts + 1, 0);
  for (size_t i = 0; i < order_.size(); ++i) {
    ++places[part_of(values_[i]) + 1];
  }
  std::partial_sum(places.begin(), places.end(), places.begin());
  for (uint32_t i = 0; i < order_.size(); ++i) {
    order_[places[part_of(values_[i])]++] = i;  // a part's place becomes the next one's
  }
  uint32_t begin = 0;
  for (size_t part = 0; part < parts; ++part) {
    std::sort(order_.begin() + begin, order_.begin() + places[part],
              [values = values_](uint32_t a, uint32_t b) {
                return values[a] < values[b] || (values[a] == values[b] && a < b);
              });
    begin = places[part];
  }
}

// Workers in the order of their latest ends: a list, so that who ends again moves to its back at
// once, and the front is who would wait longest.
class LatestEnds {
 public:
  explicit LatestEnds(size_t workers)
      : root_(static_cast<uint32_t>(workers)),
        links_(workers + 1, {root_, root_}),
        times_(workers),
        counts_(workers, 0) {}

  void Add(const End& end) {
    Link& mine = links_[end.worker];
    if (counts_[end.worker]++ == 0) {
      ++present_;
    } else {
      links_[mine.before].after = mine.after;
      links_[mine.after].before = mine.before;
    }
    mine = {links_[root_].before, root_};
    links_[mine.before].after = end.worker;
    links_[root_].before = end.worker;
    times_[end.worker] = end.time;
  }

  bool has_all() const { return present_ == times_.size(); }
  double earliest() const { return times_[links_[root_].after]; }

 private:
  struct Link {
    uint32_t before;
    uint32_t after;
  };

  const uint32_t root_;
  std::vector<Link> links_;
  std::vector<double> times_;
  std::vector<uint32_t> counts_;
  size_t present_ = 0;
};

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
  const InOrder all(ends);
  LatestEnds latest(ends.workers);
  Barrier best;
  best.waiting_time = std::numeric_limits<double>::infinity();
  size_t until = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const End end = all[i];
    latest.Add(end);
    if (latest.has_all() && end.time - latest.earliest() < best.waiting_time) {
      best.waiting_time = end.time - latest.earliest();
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
  const InOrder all(ends);
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
    if (set.size() == ends.workers && set.back().time - set.front().time < least) {
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
