// Native engines of which a process may have several: one for each optimizer.

#ifndef TREPAK_OPS_RUNTIME_COORDINATION_STREAMS_H_
#define TREPAK_OPS_RUNTIME_COORDINATION_STREAMS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace trepak {

// Returns this process's engine of that number; the first call makes it, and none ever goes.
//
// Thread safety: may be called from any thread.
template <typename Engine>
Engine& EngineOf(uint32_t stream) {
  static auto* const mutex = new std::mutex;
  static auto* const engines = new std::map<uint32_t, std::unique_ptr<Engine>>;
  std::lock_guard<std::mutex> lock(*mutex);
  std::unique_ptr<Engine>& engine = (*engines)[stream];
  if (engine == nullptr) {
    engine = std::make_unique<Engine>();
  }
  return *engine;
}

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_COORDINATION_STREAMS_H_
