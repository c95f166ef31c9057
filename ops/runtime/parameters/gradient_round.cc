#include "ops/runtime/parameters/gradient_round.h"

namespace trepak {

void GradientRound::Begin(size_t pieces, size_t bytes) {
  arrived_.assign(pieces, false);
  missing_ = pieces;
  result_ = Payload::Allocate(bytes);
  delivered_ = false;
  committed_ = false;
}

GradientRound::Delivery GradientRound::Arrive(size_t piece) {
  arrived_[piece] = true;
  if (--missing_ > 0 || !waiting_) {
    return {};
  }
  delivered_ = true;
  return {Abandon(), OkStatus(), std::move(result_)};
}

GradientRound::Delivery GradientRound::Deliver(Callback callback, const std::string& whose) {
  if (waiting_ || delivered_) {
    return {
        std::move(callback),
        FailedPreconditionError(whose + ": nothing is to come, or somebody waits for it already"),
        {}};
  }
  if (missing_ > 0) {
    waiting_ = std::move(callback);
    since_ = Clock::now();
    return {};
  }
  delivered_ = true;
  return {std::move(callback), OkStatus(), std::move(result_)};
}

Status GradientRound::CheckDelivered(const std::string& whose) const {
  return delivered_ ? OkStatus()
                    : FailedPreconditionError(whose +
                                              " was pushed again before the last round's sum was "
                                              "delivered: a step was interrupted, go on from the "
                                              "last checkpoint");
}

Status GradientRound::CheckCommitted(const std::string& whose) const {
  return delivered_ || committed_
             ? OkStatus()
             : FailedPreconditionError(whose +
                                       ": a step was interrupted when it had pushed this, "
                                       "go on from the last checkpoint");
}

}  // namespace trepak
