// What this library was built from and how.

#include "ops/calls.h"
#include "ops/runtime/build_info.h"

namespace trepak {
namespace {

absl::Status GetFacts(const Arguments&, Json* facts) {
  const BuildInfo& info = GetBuildInfo();
  *facts = {{"version", info.version},
            {"tensorflow", TREPAK_TENSORFLOW_VERSION},
            {"compiler", info.compiler},
            {"cxx_standard", info.cxx_standard},
            {"build_type", info.build_type}};
  return absl::OkStatus();
}

[[maybe_unused]] const bool kRegistered = RegisterCalls({{"build_info", GetFacts}});

}  // namespace
}  // namespace trepak
