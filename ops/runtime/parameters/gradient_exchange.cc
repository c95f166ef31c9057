#include "ops/runtime/parameters/gradient_exchange.h"

#include <utility>

namespace trepak {

GradientRound* GradientExchange::UsableRound(uint32_t key, Status* status) {
  *status = Usable();
  GradientRound* const round = status->ok() ? FindRound(key) : nullptr;
  if (status->ok() && round == nullptr) {
    *status = NotFoundError(Whose(key) + " is not known");
  }
  return round;
}

void GradientExchange::Deliver(uint32_t key, Callback callback) {
  GradientRound::Delivery delivery;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Status status;
    GradientRound* const round = UsableRound(key, &status);
    if (round == nullptr) {
      delivery = {std::move(callback), status, {}};
    } else {
      delivery = round->Deliver(std::move(callback), Whose(key));
    }
  }
  delivery.Run();
}

void GradientExchange::CancelDeliver(uint32_t key) {
  GradientRound::Delivery delivery;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    GradientRound* const round = FindRound(key);
    if (round != nullptr) {
      delivery.callback = round->Abandon();
    }
    delivery.status = CancelledError(Whose(key) + ": waiting for its gradient was cancelled");
  }
  delivery.Run();
}

Status GradientExchange::CommitStep(const std::vector<uint32_t>& keys) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const uint32_t key : keys) {
    Status status;
    GradientRound* const round = UsableRound(key, &status);
    TREPAK_RETURN_IF_ERROR(status);
    round->Commit();
  }
  return OkStatus();
}

Status GradientExchange::Pending(const std::vector<uint32_t>& keys, std::vector<bool>* pending) {
  std::lock_guard<std::mutex> lock(mutex_);
  pending->clear();
  for (const uint32_t key : keys) {
    const GradientRound* const round = FindRound(key);
    if (round == nullptr) {
      return NotFoundError(Whose(key) + " is not known");
    }
    if (!round->is_delivered()) {
      TREPAK_RETURN_IF_ERROR(Usable());
      TREPAK_RETURN_IF_ERROR(round->CheckCommitted(Whose(key)));
    }
    pending->push_back(!round->is_delivered());
  }
  return OkStatus();
}

}  // namespace trepak
