#include "ops/runtime/net/status.h"

#include <utility>

namespace trepak {

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "OK";
    case StatusCode::kCancelled:
      return "CANCELLED";
    case StatusCode::kUnknown:
      return "UNKNOWN";
    case StatusCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case StatusCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case StatusCode::kNotFound:
      return "NOT_FOUND";
    case StatusCode::kAlreadyExists:
      return "ALREADY_EXISTS";
    case StatusCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case StatusCode::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case StatusCode::kAborted:
      return "ABORTED";
    case StatusCode::kOutOfRange:
      return "OUT_OF_RANGE";
    case StatusCode::kUnimplemented:
      return "UNIMPLEMENTED";
    case StatusCode::kInternal:
      return "INTERNAL";
    case StatusCode::kUnavailable:
      return "UNAVAILABLE";
  }
  // Reached by a number off the wire that was cast to StatusCode. No default label above, so that
  // the compiler reports a code that is added without a name.
  return "UNRECOGNIZED_CODE";
}

Status::Status(StatusCode code, std::string message) {
  if (code != StatusCode::kOk) {
    error_ = std::make_shared<const Error>(Error{code, std::move(message)});
  }
}

std::string Status::ToString() const {
  std::string text(StatusCodeName(code()));
  if (!message().empty()) {
    text.append(": ").append(message());
  }
  return text;
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

std::ostream& operator<<(std::ostream& os, const Status& status) { return os << status.ToString(); }

Status CancelledError(std::string message) { return {StatusCode::kCancelled, std::move(message)}; }

Status UnknownError(std::string message) { return {StatusCode::kUnknown, std::move(message)}; }

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

Status OutOfRangeError(std::string message) {
  return {StatusCode::kOutOfRange, std::move(message)};
}

Status UnimplementedError(std::string message) {
  return {StatusCode::kUnimplemented, std::move(message)};
}

Status InternalError(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

Status UnavailableError(std::string message) {
  return {StatusCode::kUnavailable, std::move(message)};
}

}  // namespace trepak
