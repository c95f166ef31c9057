// What the runtime was built from and how, for bug reports and version checks.

#ifndef TREPAK_OPS_RUNTIME_BUILD_INFO_H_
#define TREPAK_OPS_RUNTIME_BUILD_INFO_H_

#include <string>

namespace trepak {

struct BuildInfo {
  std::string version;       // trepak's version, e.g. "0.1.0".
  std::string compiler;      // E.g. "GCC 12.2.0".
  std::string cxx_standard;  // E.g. "C++17".
  std::string sanitizer;     // "none", or what TREPAK_SANITIZE named, e.g. "address,undefined".
  std::string build_type;    // CMake's build type, e.g. "Release".
};

// Thread safety: may be called from many threads at once.
const BuildInfo& GetBuildInfo();

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_BUILD_INFO_H_
