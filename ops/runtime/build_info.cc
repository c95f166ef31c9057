#include "ops/runtime/build_info.h"

// CMake defines these for this file alone, so that a new version number rebuilds nothing else.
#if !defined(TREPAK_VERSION) || !defined(TREPAK_SANITIZER) || !defined(TREPAK_BUILD_TYPE)
#error "TREPAK_VERSION, TREPAK_SANITIZER and TREPAK_BUILD_TYPE must be defined by the build"
#endif

namespace trepak {
namespace {

std::string Compiler() {
#if defined(__clang__)
  return std::string("Clang ") + __clang_version__;
#elif defined(__GNUC__)
  return std::string("GCC ") + __VERSION__;
#else
  return "unknown compiler";
#endif
}

// __cplusplus is the standard's year and month, e.g. 201703 for C++17.
std::string CxxStandard() { return "C++" + std::to_string(__cplusplus / 100 % 100); }

}  // namespace

const BuildInfo& GetBuildInfo() {
  // Never destroyed, so that threads that are still running at exit may ask.
  static const BuildInfo* const info =
      new BuildInfo{TREPAK_VERSION, Compiler(), CxxStandard(), TREPAK_SANITIZER, TREPAK_BUILD_TYPE};
  return *info;
}

}  // namespace trepak
