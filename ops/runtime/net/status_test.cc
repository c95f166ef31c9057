#include "ops/runtime/net/status.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace trepak {
namespace {

TEST(StatusTest, DefaultIsOk) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status, OkStatus());
}

TEST(StatusTest, OkIsOnePointerPairAndDropsTheMessage) {
  EXPECT_LE(sizeof(Status), 2 * sizeof(void*));
  EXPECT_EQ(Status(StatusCode::kOk, "dropped"), OkStatus());
}

TEST(StatusTest, FactoriesSetCodeAndMessage) {
  const std::vector<std::pair<Status (*)(std::string), StatusCode>> factories = {
      {CancelledError, StatusCode::kCancelled},
      {InvalidArgumentError, StatusCode::kInvalidArgument},
      {DeadlineExceededError, StatusCode::kDeadlineExceeded},
      {NotFoundError, StatusCode::kNotFound},
      {AlreadyExistsError, StatusCode::kAlreadyExists},
      {ResourceExhaustedError, StatusCode::kResourceExhausted},
      {FailedPreconditionError, StatusCode::kFailedPrecondition},
      {AbortedError, StatusCode::kAborted},
      {InternalError, StatusCode::kInternal},
      {UnavailableError, StatusCode::kUnavailable},
  };
  for (const auto& [factory, code] : factories) {
    const Status status = factory("why");
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(status.message(), "why");
  }
}

TEST(StatusTest, EqualityComparesCodeAndMessage) {
  EXPECT_EQ(InternalError("a"), InternalError("a"));
  EXPECT_NE(InternalError("a"), InternalError("b"));
  EXPECT_NE(InternalError("a"), AbortedError("a"));
  EXPECT_NE(InternalError(""), OkStatus());
}

TEST(StatusTest, AnnotatePrependsAndKeepsTheCode) {
  Status status = UnavailableError("connection reset");
  status.Annotate("node-b").Annotate("rank 3");
  EXPECT_EQ(status, UnavailableError("rank 3: node-b: connection reset"));
}

TEST(StatusTest, AnnotateWorksOnTemporaries) {
  EXPECT_EQ(AbortedError("gone").Annotate("rank 1"), AbortedError("rank 1: gone"));
  EXPECT_EQ(AbortedError("").Annotate("rank 1"), AbortedError("rank 1"));
  EXPECT_EQ(AbortedError("gone").Annotate(""), AbortedError("gone"));
}

TEST(StatusTest, AnnotateLeavesOkAlone) { EXPECT_TRUE(OkStatus().Annotate("rank 3").ok()); }

TEST(StatusTest, AnnotateLeavesCopiesAlone) {
  const Status original = InternalError("broken");
  Status copy = original;
  copy.Annotate("rank 3");
  EXPECT_EQ(original.message(), "broken");
  EXPECT_EQ(copy.message(), "rank 3: broken");
}

TEST(StatusTest, MovedFromStatusCanBeAssigned) {
  Status a = InternalError("broken");
  const Status b = std::move(a);
  a = AbortedError("again");
  EXPECT_EQ(b, InternalError("broken"));
  EXPECT_EQ(a, AbortedError("again"));
}

Status ReturnIfError(const Status& first, int* evaluations, bool* reached_end) {
  TREPAK_RETURN_IF_ERROR((++*evaluations, first));
  *reached_end = true;
  return OkStatus();
}

TEST(StatusTest, ReturnIfErrorReturnsErrorsOnly) {
  int evaluations = 0;
  bool reached_end = false;
  EXPECT_EQ(ReturnIfError(InternalError("x"), &evaluations, &reached_end), InternalError("x"));
  EXPECT_FALSE(reached_end);
  EXPECT_EQ(evaluations, 1);
  EXPECT_TRUE(ReturnIfError(OkStatus(), &evaluations, &reached_end).ok());
  EXPECT_TRUE(reached_end);
  EXPECT_EQ(evaluations, 2);
}

// Under the thread sanitizer this shows that copies share their error without a race.
TEST(StatusTest, ManyThreadsCopyAndAnnotateOneStatus) {
  const Status shared = UnavailableError("gone");
  std::vector<Status> annotated(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < annotated.size(); ++i) {
    threads.emplace_back([&shared, &annotated, i] {
      for (int round = 0; round < 1000; ++round) {
        annotated[i] = Status(shared).Annotate("rank " + std::to_string(i));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (size_t i = 0; i < annotated.size(); ++i) {
    EXPECT_EQ(annotated[i].message(), "rank " + std::to_string(i) + ": gone");
  }
  EXPECT_EQ(shared.message(), "gone");
}

}  // namespace
}  // namespace trepak
