#include "ops/runtime/observe/emulated_stream.h"

#include <utility>

namespace trepak {

EmulatedStream::Piece EmulatedStream::Enqueue(Duration duration, std::function<void()> done) {
  Piece piece;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const Clock::time_point now = Clock::now();
    const bool queued_ahead = end_ != Clock::time_point::min() && now - kQueuedAhead < end_;
    piece.begin = queued_ahead ? end_ : now;
    piece.end = piece.begin + duration;
    end_ = piece.end;
    total_ += duration;
  }
  timer_.RunAt(piece.end, std::move(done));
  return piece;
}

EmulatedStream::Duration EmulatedStream::total() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return total_;
}

EmulatedStream& EmulatedStream::Global() {
  static EmulatedStream* const stream = new EmulatedStream(TimerThread::Global());
  return *stream;
}

}  // namespace trepak
