#include "ops/runtime/net/ucx_library.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>

#include "ops/runtime/net/ucx_testing.h"
#include "ops/runtime/net/ucx_worker.h"

namespace trepak {
namespace {

using testing::HasSubstr;

// The first bytes of a function, which a patch would change.
std::string CodeOf(const char* function) {
  return {static_cast<const char*>(dlsym(RTLD_DEFAULT, function)), 16};
}

TEST(UcxLibraryTest, LeavesTheProcessAsItWas) {
  struct sigaction before {
  }, after{};
  ASSERT_EQ(sigaction(SIGSEGV, nullptr, &before), 0);
  const std::string unmap = CodeOf("munmap"), advise = CodeOf("madvise");
  UcxNobody nobody;
  for (const char* const transports : {"", "tcp,self"}) {
    setenv("UCX_TLS", transports, 1);
    std::unique_ptr<UcxWorker> worker;
    const Status status = UcxWorker::Make({*transports == 0, 0}, &nobody, &worker);
    ASSERT_TRUE(status.ok()) << status;
  }
  unsetenv("UCX_TLS");
  ASSERT_EQ(sigaction(SIGSEGV, nullptr, &after), 0);
  EXPECT_EQ(before.sa_sigaction, after.sa_sigaction);
  EXPECT_EQ(CodeOf("munmap"), unmap);
  EXPECT_EQ(CodeOf("madvise"), advise);
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
