#include "ops/runtime/net/ucx_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>

namespace trepak {
namespace {

using testing::HasSubstr;

TEST(UcxLibraryTest, CrashesStayTheProcesssOwnAffair) {
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGSEGV, nullptr, &before), 0);
  const UcxLibrary* library = nullptr;
  const Status status = UcxLibrary::Open(&library);
  ASSERT_TRUE(status.ok()) << status;
  struct sigaction after {};
  ASSERT_EQ(sigaction(SIGSEGV, nullptr, &after), 0);
  EXPECT_EQ(before.sa_sigaction, after.sa_sigaction);
  const UcxLibrary* again = nullptr;
  EXPECT_TRUE(UcxLibrary::Open(&again).ok());
  EXPECT_EQ(again, library);
}

TEST(UcxLibraryTest, SaysWhatToInstall) {
  const Status status = UcxLibrary().Load("libnosuchthing.so.0");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("libnosuchthing.so.0"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("libucx0"));
  EXPECT_THAT(std::string(UcxLibrary().Load("libm.so.6").message()), HasSubstr("has no ucs_"));
}

}  // namespace
}  // namespace trepak
