#include "ops/runtime/dymem/replay.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <random>

#include "ops/runtime/dymem/replay_bounds.h"
#include "ops/runtime/dymem/replay_pool.h"

namespace trepak {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class Simulation {
 public:
  Simulation(const ReplayProgram& program, const ReplayOptions& options)
      : program_(program),
        options_(options),
        pool_(options, &figures_),
        random_(options.seed),
        offsets_(program.requests.size()),
        copies_(program.copies.size()) {}

  ReplayFigures Run() {
    for (int block = 0; block < program_.before && Runs(); ++block) {
      Allocate(block);
    }
    const int layers = static_cast<int>(program_.layers.size());
    for (int layer = 0; layer < layers && Runs(); ++layer) {
      if (layer == program_.first_backward) {
        WaitForCopies();
        figures_.forward.taken = now_;
      }
      RunLayer(layer);
      figures_.curve.push_back(pool_.TakePoint());
    }
    figures_.backward.taken = now_ - figures_.forward.taken;
    figures_.fragmentation = pool_.fragmentation();
    return std::move(figures_);
  }

 private:
  struct CopyState {
    enum class Where { kAway, kComing, kHere } where = Where::kAway;
    bool is_out = false;   // the offload is done
    bool is_read = false;  // by all of the forward pass
    double out_at = kNever;
    double here_at = kNever;
  };
  struct Fetch {
    int copy;
    double queued_at;
    bool waits;    // for room
    bool blocked;  // until something is freed
  };

  bool Runs() const { return figures_.failed_block < 0; }

  void RunLayer(int number) {
    running_ = number;
    const ReplayProgram::Layer& layer = program_.layers[number];
    BeginFetches(number);
    for (size_t at = 0; at < layer.at_begin && Runs(); ++at) {
      Do(layer.events[at]);
    }
    ReplayPass& pass = number < program_.first_backward ? figures_.forward : figures_.backward;
    const double seconds = layer.seconds * (1 + options_.jitter * uniform_(random_));
    pass.computed += seconds;
    now_ += seconds;
    Advance(now_);
    EndReads(number);
    for (size_t at = layer.at_begin; at < layer.events.size() && Runs(); ++at) {
      Do(layer.events[at]);
    }
    if (program_.waits_each_layer) {
      WaitForCopies();  // those that began with this layer
    }
    BeginOffloads(number);
    if (!options_.overlaps) {
      WaitForCopies();
    }
  }

  void BeginFetches(int layer) {
    const int count = static_cast<int>(copies_.size());
    while (next_fetch_ < count && program_.copies[next_fetch_].fetch_at <= layer) {
      copies_[next_fetch_].where = CopyState::Where::kComing;
      fetches_.push_back({next_fetch_++, now_, false, false});
    }
    if (!options_.overlaps) {
      WaitForCopies();
    }
    for (int copy = 0; copy < next_fetch_ && Runs(); ++copy) {
      if (program_.copies[copy].needed_at == layer) {
        WaitFor(copy);
      }
    }
  }

  void BeginOffloads(int layer) {
    for (size_t number = 0; number < copies_.size(); ++number) {
      if (program_.copies[number].leaves_after == layer) {
        SendOut(static_cast<int>(number), &figures_.forward);
      }
    }
  }

  void SendOut(int number, ReplayPass* pass) {
    const ReplayProgram::Copy& copy = program_.copies[number];
    offload_free_ = std::max(offload_free_, now_) + copy.seconds;
    copies_[number].out_at = offload_free_;
    offloads_.push_back(number);
    pass->copied += copy.seconds;
    figures_.swapped_bytes += copy.bytes;
  }

  void EndReads(int layer) {
    for (size_t number = 0; number < copies_.size(); ++number) {
      if (program_.copies[number].last_read == layer) {
        copies_[number].is_read = true;
        Leave(static_cast<int>(number));
      }
    }
  }

  // Frees the memory of what is out and read by all.
  void Leave(int number) {
    if (copies_[number].is_out && copies_[number].is_read) {
      FreeBlock(program_.copies[number].block);
    }
  }

  void Do(const ReplayProgram::Event& event) {
    if (event.is_free) {
      FreeBlock(event.block);
    } else {
      Allocate(event.block);
    }
  }

  void FreeBlock(int block) {
    if (offsets_[block]) {
      pool_.Free(*offsets_[block], program_.requests[block].bytes);
      offsets_[block].reset();
    }
  }

  void Allocate(int block) {
    Advance(now_);
    const Placement::Request& request = program_.requests[block];
    offsets_[block] = pool_.Take(request);
    while (!offsets_[block] && Runs()) {
      if (!pool_.CommitBeta() && !WaitForOffload() && !Evict()) {
        figures_.failed_block = block;
        return;
      }
      offsets_[block] = pool_.Take(request);
    }
  }

  // Whether one was under way.
  bool WaitForOffload() {
    if (offloads_.empty()) {
      return false;
    }
    ++figures_.waits;
    now_ = std::max(now_, copies_[offloads_.front()].out_at);
    Advance(now_);
    return true;
  }

  // Sends out again what is needed last of all that came back and was not read yet. Whether there
  // is any, or may be any once the copy under way is done.
  bool Evict() {
    for (int number = next_fetch_ - 1; number >= 0; --number) {
      CopyState& copy = copies_[number];
      const bool is_unread = program_.copies[number].needed_at > running_;
      if (is_unread && copy.where == CopyState::Where::kHere && copy.here_at <= now_) {
        copy.where = CopyState::Where::kAway;
        SendOut(number, &figures_.backward);
        ++figures_.evictions;
        return true;
      }
    }
    const bool is_coming = fetch_free_ > now_;
    now_ = std::max(now_, fetch_free_);
    return is_coming;
  }

  void WaitFor(int number) {
    CopyState& copy = copies_[number];
    while (copy.where != CopyState::Where::kHere && Runs()) {
      if (copy.where == CopyState::Where::kAway) {  // there was no room when its turn came
        copy.where = CopyState::Where::kComing;
        fetches_.push_back({number, now_, true, false});
      }
      const double next = NextEvent();
      if (next < kNever) {
        figures_.waits += fetches_.front().blocked ? 1 : 0;  // for an offload
        now_ = std::max(now_, next);
        Advance(now_);
      } else if (!Evict()) {
        figures_.failed_block = program_.copies[number].block;
      }
    }
    now_ = Runs() ? std::max(now_, copy.here_at) : now_;
  }

  void WaitForCopies() {
    while (Runs() && NextEvent() < kNever) {
      now_ = std::max(now_, NextEvent());
      Advance(now_);
    }
    now_ = std::max(now_, fetch_free_);
  }

  // When the next offload ends or the next fetch begins.
  double NextEvent() const {
    const double out = offloads_.empty() ? kNever : copies_[offloads_.front()].out_at;
    return std::min(out, NextFetch());
  }
  double NextFetch() const {
    if (fetches_.empty() || fetches_.front().blocked) {
      return kNever;
    }
    return std::max(fetches_.front().queued_at, fetch_free_);  // offloads were waited for
  }

  void Advance(double until) {
    while (NextEvent() <= until) {
      const double out = offloads_.empty() ? kNever : copies_[offloads_.front()].out_at;
      if (out <= NextFetch()) {
        const int number = offloads_.front();
        offloads_.pop_front();
        copies_[number].is_out = true;
        Leave(number);
        if (!fetches_.empty()) {
          fetches_.front().blocked = false;
          fetches_.front().queued_at = std::max(fetches_.front().queued_at, out);
        }
      } else {
        BeginFetch(NextFetch());
      }
    }
  }

  void BeginFetch(double at) {
    Fetch& fetch = fetches_.front();
    CopyState& copy = copies_[fetch.copy];
    const ReplayProgram::Copy& of = program_.copies[fetch.copy];
    auto offset = pool_.Take({of.bytes, Mobility::kMovable, 1});
    while (!offset && fetch.waits && pool_.CommitBeta()) {
      offset = pool_.Take({of.bytes, Mobility::kMovable, 1});
    }
    if (!offset && fetch.waits) {
      fetch.blocked = true;
      return;
    }
    if (offset) {
      offsets_[of.block] = offset;
      fetch_free_ = at + of.seconds;
      copy.here_at = fetch_free_;
      figures_.backward.copied += of.seconds;
    }
    copy.where = offset ? CopyState::Where::kHere : CopyState::Where::kAway;
    fetches_.pop_front();
  }

  const ReplayProgram& program_;
  const ReplayOptions& options_;
  ReplayFigures figures_;
  ReplayPool pool_;
  std::mt19937_64 random_;
  std::uniform_real_distribution<double> uniform_{-1, 1};
  double now_ = 0;
  int running_ = -1;                            // the layer
  std::vector<std::optional<size_t>> offsets_;  // by block
  std::vector<CopyState> copies_;
  std::deque<int> offloads_;
  double offload_free_ = 0;
  std::deque<Fetch> fetches_;
  double fetch_free_ = 0;
  int next_fetch_ = 0;
};

}  // namespace

ReplayFigures Replay(const ReplayProgram& program, const ReplayOptions& options) {
  ReplayFigures figures = Simulation(program, options).Run();
  AddBounds(program, &figures);
  return figures;
}

}  // namespace trepak
