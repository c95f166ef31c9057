// For tests: how much memory this process has.

#ifndef TREPAK_OPS_RUNTIME_NET_RESIDENT_MEMORY_H_
#define TREPAK_OPS_RUNTIME_NET_RESIDENT_MEMORY_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace trepak {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryIsOurs = false;  // the sanitizers keep what is let go
#else
constexpr bool kMemoryIsOurs = true;
#endif

// Bytes of this process in memory: now, "VmRSS", or at most since ForgetPeak, "VmHWM".
inline int64_t Resident(const std::string& what) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    if (word == what + ":") {
      int64_t kilobytes = 0;
      file >> kilobytes;
      return kilobytes << 10;
    }
  }
  ADD_FAILURE() << "no " << what;
  return 0;
}

inline void ForgetPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_RESIDENT_MEMORY_H_
