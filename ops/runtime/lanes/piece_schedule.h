// Which pieces of gradients all ranks reduce next, first layers first.

#ifndef TREPAK_OPS_RUNTIME_LANES_PIECE_SCHEDULE_H_
#define TREPAK_OPS_RUNTIME_LANES_PIECE_SCHEDULE_H_

#include <cstddef>
#include <map>
#include <vector>

namespace trepak {

// A gradient is cut into pieces, and only a window of them is under way at a time: what is needed
// sooner then waits for a window of what was there before, and for no more. What is chosen follows
// from what was added, so that ranks that have added the same choose the same.
//
// Thread safety: none, the owner locks.
class PieceSchedule {
 public:
  struct Rules {
    size_t piece_bytes = 0;   // larger gradients are cut; a multiple of 8
    size_t window_bytes = 0;  // of the pieces that are chosen together; at least one is
    size_t urgent_bytes = 0;  // of the first gradients, which are not to wait for a window
  };

  struct Piece {
    size_t variable = 0;  // as Add was told
    size_t index = 0;     // in the variable, from 0 on
    size_t offset = 0;    // in bytes
    size_t bytes = 0;
  };

  explicit PieceSchedule(const Rules& rules) : rules_(rules) {}

  // The number of pieces of a gradient of so many bytes; none of an empty one.
  size_t PiecesOf(size_t bytes) const;

  // The pieces of a gradient that waits for no window.
  std::vector<Piece> Cut(size_t variable, size_t bytes) const;

  // All ranks have a gradient of this variable. Lower ones go first. One that is not empty, and of
  // which no piece is left.
  void Add(size_t variable, size_t bytes);

  // Takes the pieces to reduce next; none if there are none.
  std::vector<Piece> Next();

  bool empty() const { return waiting_.empty(); }

 private:
  struct Waiting {
    size_t bytes = 0;
    size_t next = 0;  // piece
  };

  Piece PieceAt(size_t variable, size_t index, size_t bytes) const;

  const Rules rules_;
  std::map<size_t, Waiting> waiting_;  // by variable
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_LANES_PIECE_SCHEDULE_H_
