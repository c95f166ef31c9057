// How full a pool was over time, in few numbers.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_MEMORY_CURVE_H_
#define TREPAK_OPS_RUNTIME_DYMEM_MEMORY_CURVE_H_

#include <chrono>
#include <cstddef>
#include <vector>

namespace trepak {

// The most that lived, and the most that was occupied, from `time` on until the next point's.
struct MemoryPoint {
  using Time = std::chrono::steady_clock::time_point;

  Time time;
  size_t live = 0;      // bytes
  size_t occupied = 0;  // bytes, holes included
};

// Keeps at most so many points, however many changes there are: when it is full, each two points
// become one, and from then on a point stands for twice as many changes. No peak is lost.
//
// Thread safety: none; its owner locks.
class MemoryCurve {
 public:
  static constexpr size_t kMostPoints = 1024;

  // Times must not go back. Takes no memory, but for a curve's first points.
  void Add(const MemoryPoint& change);
  // Begins anew.
  void Clear();

  const std::vector<MemoryPoint>& points() const { return points_; }

 private:
  std::vector<MemoryPoint> points_;
  size_t changes_per_point_ = 1;
  size_t changes_of_last_ = 0;  // how many the last point stands for
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_MEMORY_CURVE_H_
