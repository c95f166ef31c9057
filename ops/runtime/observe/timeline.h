// Writes what this process does, and when, as a Chrome trace that Perfetto opens.

#ifndef TREPAK_OPS_RUNTIME_OBSERVE_TIMELINE_H_
#define TREPAK_OPS_RUNTIME_OBSERVE_TIMELINE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "ops/runtime/net/status.h"

namespace trepak {

// The file is a JSON array with one event a line, closed by Close. Viewers read an array without
// its end too: a process that is killed loses at most the last second.
//
// Thread safety: every method may be called from any thread.
class Timeline {
 public:
  using Clock = std::chrono::steady_clock;

  // What stands below each other in the picture. 3 is who waits for whom, which a merge finds out.
  enum class Track {
    kSteps = 0,
    kAccelerator = 1,
    kProgram = 2,
    kRounds = 4,
    kAlltoalls = 1000,
    kCopiesOut = 2000,
    kCopiesIn = 2001
  };

  // Numbers that are shown with a span.
  using Numbers = std::initializer_list<std::pair<const char*, int64_t>>;

  Timeline() = default;
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;
  ~Timeline();

  // Begins a file. Spans are kept while the current step is in [first_step, end_step); the next
  // step to begin is `step`. `about`: a JSON object that says whose file it is; `rank` and `title`
  // name the process in it.
  Status Open(const std::string& path, int rank, const std::string& title, const std::string& about,
              int64_t step, int64_t first_step, int64_t end_step);

  // Whether spans are kept now; costs one atomic load.
  bool on() const { return on_.load(std::memory_order_relaxed); }

  // Keeps a span, if on. Spans of one track that may overlap need rows of their own.
  void Span(Track track, std::string_view name, Clock::time_point begin, Clock::time_point end,
            Numbers numbers = {}, int row = 0);

  // Keeps what a number was from then on, if on. Each name is a curve of its own.
  void Counter(std::string_view name, Clock::time_point time, int64_t value);

  // Says that `step` begins: opens and closes the window, and writes what has gathered.
  void BeginStep(int64_t step);

  // Writes the rest and ends the file. Returns the first error of all writes. OK if none is open.
  Status Close();

  // That of this process.
  static Timeline& Global();

 private:
  // Require mutex_.
  void Flush();
  void Append(const std::string& event, const std::string& place);
  void NameRow(Track track, int row);
  Status Failure(const char* what) const;

  std::atomic<bool> on_{false};
  std::mutex mutex_;
  // All guarded by mutex_.
  std::FILE* file_ = nullptr;
  std::string path_;
  int rank_ = 0;
  int64_t first_step_ = 0;
  int64_t end_step_ = 0;
  std::set<std::pair<Track, int>> named_;  // rows with spans
  std::string buffer_;
  Clock::time_point flushed_;
  Status status_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_OBSERVE_TIMELINE_H_
