#include <gtest/gtest.h>

#include <string>

namespace trepak {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr const char kInstrumentation[] = "address";
#elif defined(__SANITIZE_THREAD__)
constexpr const char kInstrumentation[] = "thread";
#else
constexpr const char kInstrumentation[] = "";
#endif

// Guards against a sanitizer stage that silently builds without its sanitizer.
TEST(SanitizerTest, IsWhatTheBuildWasAskedFor) {
  const std::string sanitizer = TREPAK_EXPECTED_SANITIZER;
  EXPECT_NE(sanitizer.find(kInstrumentation), std::string::npos) << sanitizer;
  if (std::string(kInstrumentation).empty()) {
    EXPECT_TRUE(sanitizer == "none" || sanitizer == "undefined") << sanitizer;
  }
}

}  // namespace
}  // namespace trepak
