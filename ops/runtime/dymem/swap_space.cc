#include "ops/runtime/dymem/swap_space.h"

#include <algorithm>
#include <iterator>

namespace trepak {

SwapSpace::SwapSpace(size_t limit, size_t granule)
    : limit_(limit / granule * granule), granule_(granule) {
  if (limit_ > 0) {
    AddFree(0, limit_);
  }
}

bool SwapSpace::Take(size_t bytes, size_t* begin) {
  *begin = 0;
  if (bytes == 0) {
    return true;
  }
  if (bytes > limit_) {  // before they are made whole, which may overflow
    return false;
  }
  const size_t whole = Whole(bytes);
  const auto fitting = by_size_.lower_bound({whole, 0});
  if (fitting == by_size_.end()) {
    return false;
  }
  const auto [free_bytes, free_begin] = *fitting;
  RemoveFree(free_.find(free_begin));
  if (free_bytes > whole) {
    AddFree(free_begin + whole, free_bytes - whole);
  }
  taken_[free_begin] = whole;
  used_ += whole;
  peak_ = std::max(peak_, used_);
  reached_ = std::max(reached_, free_begin + whole);
  *begin = free_begin;
  return true;
}

bool SwapSpace::Give(size_t begin, size_t bytes) {
  if (bytes == 0) {
    return true;
  }
  const auto found = taken_.find(begin);
  if (found == taken_.end() || bytes > limit_ || found->second != Whole(bytes)) {
    return false;
  }
  size_t whole = found->second;
  taken_.erase(found);
  used_ -= whole;
  const auto after = free_.lower_bound(begin);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      begin = before->first;
      whole += before->second;
      RemoveFree(before);
    }
  }
  if (after != free_.end() && begin + whole == after->first) {
    whole += after->second;
    RemoveFree(after);
  }
  AddFree(begin, whole);
  return true;
}

size_t SwapSpace::Whole(size_t bytes) const { return (bytes + granule_ - 1) / granule_ * granule_; }

void SwapSpace::AddFree(size_t begin, size_t bytes) {
  free_[begin] = bytes;
  by_size_.insert({bytes, begin});
}

void SwapSpace::RemoveFree(std::map<size_t, size_t>::iterator piece) {
  by_size_.erase({piece->second, piece->first});
  free_.erase(piece);
}

}  // namespace trepak
