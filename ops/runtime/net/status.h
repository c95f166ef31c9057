// The result of every fallible call of the runtime.
//
// A Status is either OK or a code with a message. It is [[nodiscard]]: an ignored error is a
// compile error. Thread safety: const methods may be called from many threads at once; anything
// else needs outside locking, as for std::string.

#ifndef TREPAK_OPS_RUNTIME_NET_STATUS_H_
#define TREPAK_OPS_RUNTIME_NET_STATUS_H_

#include <memory>
#include <ostream>
#include <string>
#include <string_view>

namespace trepak {

// The values are those of the canonical codes that TensorFlow and gRPC use, so that an adapter
// converts by value.
enum class StatusCode : int {
  kOk = 0,
  kCancelled = 1,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kInternal = 13,
  kUnavailable = 14,
};

class [[nodiscard]] Status {
 public:
  // OK costs one null pointer: no allocation, neither to make nor to copy.
  Status() = default;

  // An error. A `code` of kOk yields an OK status and drops the message.
  Status(StatusCode code, std::string message);

  bool ok() const { return error_ == nullptr; }
  StatusCode code() const { return ok() ? StatusCode::kOk : error_->code; }

  // The empty string if OK. Valid as long as this status is neither assigned to nor destroyed.
  std::string_view message() const {
    return ok() ? std::string_view() : std::string_view(error_->message);
  }

  // Prepends `context` to the message ("context: message"), to say whose error it was: a peer, a
  // rank, a tensor. The code stays; an OK status stays OK. Copies of this status are not affected.
  Status& Annotate(std::string_view context) &;
  Status&& Annotate(std::string_view context) &&;

  friend bool operator==(const Status& a, const Status& b) {
    return a.code() == b.code() && a.message() == b.message();
  }
  friend bool operator!=(const Status& a, const Status& b) { return !(a == b); }

 private:
  struct Error {
    StatusCode code;
    std::string message;
  };

  // Immutable once made, hence shared by copies without a lock. Null means OK.
  std::shared_ptr<const Error> error_;
};

// For tests, whose failures show it.
inline std::ostream& operator<<(std::ostream& os, const Status& status) {
  return os << "code " << static_cast<int>(status.code()) << ": " << status.message();
}

inline Status OkStatus() { return Status(); }
Status CancelledError(std::string message);
Status InvalidArgumentError(std::string message);
Status DeadlineExceededError(std::string message);
Status NotFoundError(std::string message);
Status AlreadyExistsError(std::string message);
Status ResourceExhaustedError(std::string message);
Status FailedPreconditionError(std::string message);
Status AbortedError(std::string message);
Status InternalError(std::string message);
Status UnavailableError(std::string message);

}  // namespace trepak

// Evaluates `expr` once and returns its status from the enclosing function unless it is OK.
#define TREPAK_RETURN_IF_ERROR(expr)                         \
  do {                                                       \
    ::trepak::Status trepak_return_if_error_value_ = (expr); \
    if (!trepak_return_if_error_value_.ok()) {               \
      return trepak_return_if_error_value_;                  \
    }                                                        \
  } while (false)

#endif  // TREPAK_OPS_RUNTIME_NET_STATUS_H_
