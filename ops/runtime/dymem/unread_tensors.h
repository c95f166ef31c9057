// Tensors that wait in memory to be read: what may leave at a shortage.

#ifndef TREPAK_OPS_RUNTIME_DYMEM_UNREAD_TENSORS_H_
#define TREPAK_OPS_RUNTIME_DYMEM_UNREAD_TENSORS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

namespace trepak {

// Owns nothing but the callbacks. Thread safety: every method may be called from any thread; a
// callback is called with no lock held.
class UnreadTensors {
 public:
  // Sends the tensor out again. False if somebody has read it meanwhile, or it is gone.
  using Leave = std::function<bool()>;

  // One that was prefetched. Prefetches are queued in the order in which tensors are needed, so
  // that what comes later is needed later. Returns its number, which is above 0.
  int64_t Add(Leave leave);
  // One that stayed. The backward pass needs it after all that were prefetched, and, as a rule,
  // after those that stayed later.
  int64_t AddKept(Leave leave);
  // It was read, or is gone. It may have been removed before.
  void Remove(int64_t number);

  // Has the tensor leave that is needed last. False if there is none.
  bool EvictLast();
  // How many have left again so far.
  int64_t evicted() const;

 private:
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::map<int64_t, Leave> tensors_;
  int64_t last_number_ = 0;
  int64_t last_kept_ = int64_t{1} << 62;  // its number; they go down
  int64_t evicted_ = 0;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_DYMEM_UNREAD_TENSORS_H_
