// What this library was built from and how.

#include <string>

#include "ops/calls.h"

namespace trepak {
namespace {

#if defined(__clang__)
constexpr char kCompiler[] = "Clang " __clang_version__;
#elif defined(__GNUC__)
constexpr char kCompiler[] = "GCC " __VERSION__;
#else
constexpr char kCompiler[] = "unknown compiler";
#endif

absl::Status GetFacts(const Arguments&, Json* facts) {
  *facts = {{"version", TREPAK_VERSION},
            {"tensorflow", TREPAK_TENSORFLOW_VERSION},
            {"compiler", kCompiler},
            // The standard's year and month, e.g. 201703 for C++17.
            {"cxx_standard", "C++" + std::to_string(__cplusplus / 100 % 100)},
            {"build_type", TREPAK_BUILD_TYPE}};
  return absl::OkStatus();
}

[[maybe_unused]] const bool kRegistered = RegisterCalls({{"build_info", GetFacts}});

}  // namespace
}  // namespace trepak

// For loader.py, which asks before any op may run.
extern "C" __attribute__((visibility("default"))) const char* trepak_compiled_for() {
  return TREPAK_TENSORFLOW_VERSION;
}
