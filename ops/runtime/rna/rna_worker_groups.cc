// What a worker of RNA does where there are groups; the rest is in rna_worker.cc.

#include <utility>

#include "ops/runtime/parameters/summation.h"
#include "ops/runtime/rna/rna_messages.h"
#include "ops/runtime/rna/rna_worker.h"

namespace trepak {

Status RnaWorker::Exchange(const Payload& values) {
  TREPAK_RETURN_IF_ERROR(error());
  TREPAK_RETURN_IF_ERROR(CheckParameters(values));
  Payload change;
  uint64_t samples = 0;
  uint64_t round = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!exchange_.locked()) {
      return FailedPreconditionError(Me() + " exchanges parameters after no round that says so");
    }
    round = *exchange_.locked();
    change = exchange_.Change(values);
    samples = exchange_.samples();
  }
  global_->Change(
      std::move(change), rules_.exchange.ranks, samples,
      [weak = weak_from_this(), round](const Status& status, Payload all, uint64_t total) {
        if (const std::shared_ptr<RnaWorker> self = weak.lock()) {
          self->Exchanged(round, status, std::move(all), total);
        }
      });
  return OkStatus();
}

Status RnaWorker::CheckParameters(const Payload& values) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (values.size() != bytes() || !exchange_.has_begun()) {
      return FailedPreconditionError(Me() + " exchanges " + std::to_string(values.size()) +
                                     " bytes of parameters, not " + std::to_string(bytes()) +
                                     ", or before it has fetched any");
    }
  }
  if (!AllFinite(rules_.type, values.size(), values.data())) {
    Fail(InvalidArgumentError(Me() + "'s parameters are not finite any more: lower the learning " +
                              "rate, or clip gradients"));  // its group waits for what comes of it
    return error();
  }
  return OkStatus();
}

void RnaWorker::Exchanged(uint64_t round, const Status& status, Payload values, uint64_t total) {
  if (!status.ok()) {
    Fail(status);
    return;
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    exchanged_ = RnaExchange::Outcome{std::move(values), exchange_.Others(total)};
  }
  const Status sent = Answer(rna::kExchanged, round);
  if (!sent.ok()) {
    Fail(sent);
  }
}

void RnaWorker::BringLastChange(const Payload& values, Callback callback) {
  Status status = error();
  if (status.ok()) {
    status = CheckParameters(values);  // of all in the group, which have the same ones
  }
  if (!status.ok() || !rules_.leads) {
    callback(status);
    return;
  }
  Payload change;
  uint64_t samples = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    change = exchange_.Change(values);
    samples = exchange_.samples();
  }
  global_->Change(std::move(change), rules_.exchange.ranks, samples,
                  [callback = std::move(callback)](const Status& outcome, const Payload&,
                                                   uint64_t) { callback(outcome); });
}

void RnaWorker::Fetch(ValuesCallback callback) {
  global_->Fetch([weak = weak_from_this(), callback = std::move(callback)](
                     const Status& status, Payload values, uint64_t total) {
    const std::shared_ptr<RnaWorker> self = weak.lock();
    if (status.ok() && self != nullptr) {
      std::lock_guard<std::mutex> lock(self->mutex_);
      self->others_samples_ += self->exchange_.Others(total);
      self->exchange_.Begin(values, total);
    }
    callback(status, std::move(values));
  });
}

void RnaWorker::Assign(Payload values, Callback callback) {
  global_->Assign(std::move(values),
                  [callback = std::move(callback)](const Status& status, const Payload&, uint64_t) {
                    callback(status);
                  });
}

uint64_t RnaWorker::TakeSamples() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(others_samples_, 0);
}

}  // namespace trepak
