#include "ops/runtime/build_info.h"

#include <gtest/gtest.h>

#include <string>

namespace trepak {
namespace {

// The build tells the test what it was asked for; the library must report the same.
TEST(BuildInfoTest, ReportsWhatTheBuildWasAskedFor) {
  const BuildInfo& info = GetBuildInfo();
  EXPECT_EQ(info.version, TREPAK_EXPECTED_VERSION);
  EXPECT_EQ(info.sanitizer, TREPAK_EXPECTED_SANITIZER);
  EXPECT_EQ(info.build_type, TREPAK_EXPECTED_BUILD_TYPE);
  EXPECT_EQ(info.cxx_standard, "C++17");
}

TEST(BuildInfoTest, NamesTheCompilerAndItsVersion) {
  const std::string& compiler = GetBuildInfo().compiler;
  EXPECT_TRUE(compiler.rfind("GCC ", 0) == 0 || compiler.rfind("Clang ", 0) == 0) << compiler;
  EXPECT_NE(compiler.find_first_of("0123456789"), std::string::npos) << compiler;
}

#if defined(__SANITIZE_ADDRESS__)
constexpr const char kInstrumentation[] = "address";
#elif defined(__SANITIZE_THREAD__)
constexpr const char kInstrumentation[] = "thread";
#else
constexpr const char kInstrumentation[] = "";
#endif

// Guards against a sanitizer stage that silently builds without its sanitizer.
TEST(BuildInfoTest, SanitizerMatchesTheInstrumentation) {
  const std::string& sanitizer = GetBuildInfo().sanitizer;
  EXPECT_NE(sanitizer.find(kInstrumentation), std::string::npos) << sanitizer;
  if (std::string(kInstrumentation).empty()) {
    EXPECT_TRUE(sanitizer == "none" || sanitizer == "undefined") << sanitizer;
  }
}

}  // namespace
}  // namespace trepak
