#include "ops/status_adapter.h"

#include <gtest/gtest.h>

#include <string>

namespace trepak {
namespace {

class StatusAdapterTest : public testing::TestWithParam<StatusCode> {};

// Compares the names, which each side spells for itself, not the numbers.
TEST_P(StatusAdapterTest, KeepsCodeAndMessage) {
  const absl::Status converted = ToAbslStatus(Status(GetParam(), "rank 3: gone"));
  EXPECT_EQ(absl::StatusCodeToString(converted.code()), StatusCodeName(GetParam()));
  EXPECT_EQ(std::string(converted.message()), "rank 3: gone");
}

INSTANTIATE_TEST_SUITE_P(EveryError, StatusAdapterTest,
                         testing::Values(StatusCode::kCancelled, StatusCode::kUnknown,
                                         StatusCode::kInvalidArgument,
                                         StatusCode::kDeadlineExceeded, StatusCode::kNotFound,
                                         StatusCode::kAlreadyExists, StatusCode::kResourceExhausted,
                                         StatusCode::kFailedPrecondition, StatusCode::kAborted,
                                         StatusCode::kOutOfRange, StatusCode::kUnimplemented,
                                         StatusCode::kInternal, StatusCode::kUnavailable));

TEST(StatusAdapterOkTest, OkStaysOk) { EXPECT_TRUE(ToAbslStatus(OkStatus()).ok()); }

}  // namespace
}  // namespace trepak
