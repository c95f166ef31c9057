// This process's timeline.

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>

#include "ops/calls.h"
#include "ops/runtime/observe/injection.h"
#include "ops/runtime/observe/timeline.h"
#include "ops/status_adapter.h"

namespace trepak {
namespace {

// A negative end_step stands for the end of the training.
absl::Status Open(const Arguments& given, Json*) {
  constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();
  // A window counts from here on, not from the process's first step.
  const int64_t now = Injection::Global().step();
  const auto end_step = given.Get<int64_t>("end_step");
  const int64_t end = end_step < 0 || end_step > kNoEnd - now ? kNoEnd : now + end_step;
  return ToAbslStatus(Timeline::Global().Open(
      given.Get<std::string>("path"), given.Get<int>("rank"), given.Get<std::string>("title"),
      given.Get<std::string>("about"), now, now + given.Get<int64_t>("first_step"), end));
}

// Of the program; begin and end in nanoseconds on the steady clock.
absl::Status AddSpan(const Arguments& given, Json*) {
  const auto time = [&](const char* name) {
    return Timeline::Clock::time_point(std::chrono::nanoseconds(given.Get<int64_t>(name)));
  };
  Timeline::Global().Span(Timeline::Track::kProgram, given.Get<std::string>("label"), time("begin"),
                          time("end"));
  return absl::OkStatus();
}

absl::Status Close(const Arguments&, Json*) { return ToAbslStatus(Timeline::Global().Close()); }

[[maybe_unused]] const bool kRegistered =
    RegisterCalls({{"open_timeline", Open}, {"add_span", AddSpan}, {"close_timeline", Close}});

}  // namespace
}  // namespace trepak
