#include "ops/runtime/net/status.h"

#include <utility>

namespace trepak {

Status::Status(StatusCode code, std::string message) {
  if (code != StatusCode::kOk) {
    error_ = std::make_shared<const Error>(Error{code, std::move(message)});
  }
}

Status& Status::Annotate(std::string_view context) & {
  if (!ok() && !context.empty()) {
    std::string annotated(context);
    if (!message().empty()) {
      annotated.append(": ").append(message());
    }
    // A new Error, never a change in place: copies share the old one.
    error_ = std::make_shared<const Error>(Error{code(), std::move(annotated)});
  }
  return *this;
}

Status&& Status::Annotate(std::string_view context) && {
  return std::move(static_cast<Status&>(*this).Annotate(context));
}

Status CancelledError(std::string message) { return {StatusCode::kCancelled, std::move(message)}; }

Status InvalidArgumentError(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}

Status DeadlineExceededError(std::string message) {
  return {StatusCode::kDeadlineExceeded, std::move(message)};
}

Status NotFoundError(std::string message) { return {StatusCode::kNotFound, std::move(message)}; }

Status AlreadyExistsError(std::string message) {
  return {StatusCode::kAlreadyExists, std::move(message)};
}

Status ResourceExhaustedError(std::string message) {
  return {StatusCode::kResourceExhausted, std::move(message)};
}

Status FailedPreconditionError(std::string message) {
  return {StatusCode::kFailedPrecondition, std::move(message)};
}

Status AbortedError(std::string message) { return {StatusCode::kAborted, std::move(message)}; }

Status InternalError(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

Status UnavailableError(std::string message) {
  return {StatusCode::kUnavailable, std::move(message)};
}

}  // namespace trepak
