// Ids of any size as rows of a table.

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_HASH_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_HASH_H_

#include <cstdint>

namespace trepak {

// One step of the generator splitmix64 from that state: ids side by side become numbers that have
// nothing to do with each other. Every rank and every version must have the same.
inline uint64_t SplitMix64(uint64_t state) {
  state += 0x9E3779B97F4A7C15;
  state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9;
  state = (state ^ state >> 27) * 0x94D049BB133111EB;
  return state ^ state >> 31;
}

// The row of an id, which may be negative too, in a table whose ids are hashed.
inline int64_t HashedRow(int64_t id, int64_t vocabulary) {
  return static_cast<int64_t>(SplitMix64(static_cast<uint64_t>(id)) %
                              static_cast<uint64_t>(vocabulary));
}

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_HASH_H_
