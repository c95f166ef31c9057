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

bool IsEarlier(const End& a, const End& b) {
  return a.time < b.time || (a.time == b.time && a.worker < b.worker);
}

// All ends in the order of time (the paper's Ω). They spread over their time quite evenly, so each
// goes to the part of it that it is in, and parts of more than one end are sorted: mostly linear,
// and O(Rn log Rn) at worst.
std::vector<End> InOrder(const EndTimes& ends) {
  const size_t count = ends.workers * ends.iterations;
  double first = ends.values[0];
  double last = first;
  for (size_t worker = 0; worker < ends.workers; ++worker) {
    first = std::min(first, ends.of(worker)[0]);
    last = std::max(last, ends.of(worker)[ends.iterations - 1]);
  }
  const double half = last / 2 - first / 2;  // of all the time; all of it might overflow
  const auto part_of = [&](double time) {
    const double place = half > 0 ? (time / 2 - first / 2) / half : 0.0;
    return std::min(static_cast<size_t>(place * static_cast<double>(count)), count - 1);
  };
  std::vector<uint32_t> begins(count + 1, 0);
  for (size_t i = 0; i < count; ++i) {
    ++begins[part_of(ends.values[i]) + 1];
  }
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  std::vector<End> all(count);
  std::vector<uint32_t> places(begins.begin(), begins.end() - 1);
  for (uint32_t worker = 0; worker < ends.workers; ++worker) {
    for (size_t i = 0; i < ends.iterations; ++i) {
      const double time = ends.of(worker)[i];
      all[places[part_of(time)]++] = {time, worker};
    }
  }
  for (size_t part = 0; part < count; ++part) {
    if (begins[part + 1] - begins[part] > 1) {
      std::sort(all.begin() + begins[part], all.begin() + begins[part + 1], IsEarlier);
    }
  }
  return all;
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
  const std::vector<End> all = InOrder(ends);
  LatestEnds latest(ends.workers);
  Barrier best;
  best.waiting_time = std::numeric_limits<double>::infinity();
  size_t until = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    latest.Add(all[i]);
    if (latest.has_all() && all[i].time - latest.earliest() < best.waiting_time) {
      best.waiting_time = all[i].time - latest.earliest();
      best.barrier_time = all[i].time;
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
  const std::vector<End> all = InOrder(ends);
  std::vector<End> set;  // the paper's Z, in the order of time
  std::vector<End> chosen;
  double least = std::numeric_limits<double>::infinity();
  for (const End& end : all) {
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
