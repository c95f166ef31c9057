#include "ops/status_adapter.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace trepak {
namespace {

TEST(StatusAdapterTest, KeepsCodeAndMessage) {
  const std::vector<std::pair<StatusCode, absl::StatusCode>> codes = {
      {StatusCode::kCancelled, absl::StatusCode::kCancelled},
      {StatusCode::kInvalidArgument, absl::StatusCode::kInvalidArgument},
      {StatusCode::kDeadlineExceeded, absl::StatusCode::kDeadlineExceeded},
      {StatusCode::kNotFound, absl::StatusCode::kNotFound},
      {StatusCode::kAlreadyExists, absl::StatusCode::kAlreadyExists},
      {StatusCode::kResourceExhausted, absl::StatusCode::kResourceExhausted},
      {StatusCode::kFailedPrecondition, absl::StatusCode::kFailedPrecondition},
      {StatusCode::kAborted, absl::StatusCode::kAborted},
      {StatusCode::kInternal, absl::StatusCode::kInternal},
      {StatusCode::kUnavailable, absl::StatusCode::kUnavailable},
  };
  for (const auto& [code, expected] : codes) {
    const absl::Status converted = ToAbslStatus(Status(code, "rank 3: gone"));
    EXPECT_EQ(converted.code(), expected);
    EXPECT_EQ(std::string(converted.message()), "rank 3: gone");
  }
}

TEST(StatusAdapterTest, OkStaysOk) { EXPECT_TRUE(ToAbslStatus(OkStatus()).ok()); }

}  // namespace
}  // namespace trepak
