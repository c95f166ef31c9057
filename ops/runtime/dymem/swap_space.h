// Which parts of a row of bytes are taken: where slots lie in memory or in a file.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_SWAP_SPACE_H_
#define TREPAK_OPS_RUNTIME_DYMEM_SWAP_SPACE_H_

#include <cstddef>
#include <map>
#include <set>
#include <utility>

namespace trepak {

// Takes the smallest free piece that is large enough, and joins free neighbours. So what was used
// before is used again, rather than what no one has touched yet, which is one piece at the end, and
// steps that swap the same tensors soon use the same bytes.
//
// Thread safety: none; its owner locks. Owns no bytes, only numbers.
class SwapSpace {
 public:
  // Every piece takes a multiple of `granule` bytes.
  SwapSpace(size_t limit, size_t granule);

  // Takes a piece, unless no free one is large enough. No bytes take none, and lie at 0.
  bool Take(size_t bytes, size_t* begin);
  // Gives back the piece that was taken there. Returns false if none was, or not of that size.
  bool Give(size_t begin, size_t bytes);

  size_t limit() const { return limit_; }
  size_t used() const { return used_; }
  size_t peak() const { return peak_; }  // the most that has been used at once
  // Behind the last byte that was ever taken: no more than these have been touched.
  size_t reached() const { return reached_; }
  size_t largest_free() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }

 private:
  size_t Whole(size_t bytes) const;
  void AddFree(size_t begin, size_t bytes);
  void RemoveFree(std::map<size_t, size_t>::iterator piece);

  const size_t limit_;
  const size_t granule_;
  size_t used_ = 0;
  size_t peak_ = 0;
  size_t reached_ = 0;
  std::map<size_t, size_t> free_;                // begin → bytes
  std::set<std::pair<size_t, size_t>> by_size_;  // the same: bytes, begin
  std::map<size_t, size_t> taken_;               // begin → bytes
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_SWAP_SPACE_H_
