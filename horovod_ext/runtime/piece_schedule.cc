#include "horovod_ext/runtime/piece_schedule.h"

#include <algorithm>

namespace trepak {

size_t PieceSchedule::PiecesOf(size_t bytes) const {
  return (bytes + rules_.piece_bytes - 1) / rules_.piece_bytes;
}

void PieceSchedule::Add(size_t variable, size_t bytes) { waiting_[variable] = {bytes, 0}; }

std::vector<PieceSchedule::Piece> PieceSchedule::Next() {
  std::vector<Piece> pieces;
  size_t total = 0;
  while (!waiting_.empty() && total < rules_.window_bytes) {
    const auto first = waiting_.begin();
    Waiting& waiting = first->second;
    const size_t offset = waiting.next * rules_.piece_bytes;
    const size_t bytes = std::min(rules_.piece_bytes, waiting.bytes - offset);
    pieces.push_back({first->first, waiting.next, offset, bytes});
    total += bytes;
    if (++waiting.next == PiecesOf(waiting.bytes)) {
      waiting_.erase(first);
    }
  }
  return pieces;
}

}  // namespace trepak
