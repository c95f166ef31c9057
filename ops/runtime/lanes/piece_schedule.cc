#include "ops/runtime/lanes/piece_schedule.h"

#include <algorithm>

namespace trepak {

size_t PieceSchedule::PiecesOf(size_t bytes) const {
  return (bytes + rules_.piece_bytes - 1) / rules_.piece_bytes;
}

std::vector<PieceSchedule::Piece> PieceSchedule::Cut(size_t variable, size_t bytes) const {
  std::vector<Piece> pieces;
  for (size_t index = 0; index < PiecesOf(bytes); ++index) {
    pieces.push_back(PieceAt(variable, index, bytes));
  }
  return pieces;
}

PieceSchedule::Piece PieceSchedule::PieceAt(size_t variable, size_t index, size_t bytes) const {
  const size_t offset = index * rules_.piece_bytes;
  return {variable, index, offset, std::min(rules_.piece_bytes, bytes - offset)};
}

void PieceSchedule::Add(size_t variable, size_t bytes) { waiting_[variable] = {bytes, 0}; }

std::vector<PieceSchedule::Piece> PieceSchedule::Next() {
  std::vector<Piece> pieces;
  size_t total = 0;
  while (!waiting_.empty() && total < rules_.window_bytes) {
    const auto first = waiting_.begin();
    Waiting& waiting = first->second;
    pieces.push_back(PieceAt(first->first, waiting.next, waiting.bytes));
    total += pieces.back().bytes;
    if (++waiting.next == PiecesOf(waiting.bytes)) {
      waiting_.erase(first);
    }
  }
  return pieces;
}

}  // namespace trepak
