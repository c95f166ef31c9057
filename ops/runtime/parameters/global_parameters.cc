#include "ops/runtime/parameters/global_parameters.h"

#include <cmath>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "ops/runtime/parameters/summation.h"

namespace trepak {

// What comes back of one call, until all of it has. Thread safety: any thread may deliver.
class ServedParameters::Gathering {
 public:
  Gathering(size_t bytes, size_t parts, Callback callback)
      : values_(Payload::Allocate(bytes)), missing_(parts + 1), callback_(std::move(callback)) {}

  void Deliver(const Status& status, size_t offset, const Payload& part) {
    if (status.ok()) {
      std::memcpy(static_cast<char*>(values_.mutable_data()) + offset, part.data(), part.size());
    }
    CountDown(status);
  }

  void DeliverSamples(const Status& status, const Payload& payload) {
    if (status.ok()) {
      samples_ = static_cast<uint64_t>(std::llround(*static_cast<const double*>(payload.data())));
    }
    CountDown(status);
  }

  // Says that so many will not come.
  void CountDown(const Status& status, size_t count = 1) {
    Callback callback;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      status_ = status_.ok() ? status : status_;
      missing_ -= count;
      if (missing_ == 0) {
        callback.swap(callback_);
      }
    }
    if (callback) {
      callback(status_, status_.ok() ? values_ : Payload(), status_.ok() ? samples_ : 0);
    }
  }

 private:
  Payload values_;  // parts of it are written by whoever delivers them
  uint64_t samples_ = 0;
  std::mutex mutex_;
  // All guarded by mutex_.
  size_t missing_;
  Status status_;
  Callback callback_;
};

void ServedParameters::Assign(Payload values, Callback callback) {
  Do(&ParameterClient::Assign, values, 0, std::move(callback));
}

void ServedParameters::Change(Payload change, uint32_t ranks, uint64_t samples, Callback callback) {
  if (ranks != 1) {
    Scale(type_, change.size(), ranks, change.data(), change.mutable_data());
  }
  Do(&ParameterClient::Change, change, samples * size_, std::move(callback));
}

void ServedParameters::Fetch(Callback callback) { Do(nullptr, Payload(), 0, std::move(callback)); }

void ServedParameters::Do(Ask ask, const Payload& values, uint64_t samples, Callback callback) {
  const std::shared_ptr<ParameterClient> client = client_.lock();
  if (client == nullptr) {
    callback(UnavailableError("the parameter servers have ended"), Payload(), 0);
    return;
  }
  size_t bytes = 0;
  for (const Part& part : parts_) {
    bytes += part.elements * SizeOf(type_);
  }
  auto gathering = std::make_shared<Gathering>(bytes, parts_.size(), std::move(callback));
  const auto ask_for = [&](uint32_t key, Precedence precedence, Payload part) {
    return ask == nullptr ? client->Fetch(key, precedence)
                          : (client.get()->*ask)(key, precedence, std::move(part));
  };
  const auto count = static_cast<double>(samples);
  Status status = ask_for(key_, Late(), Payload::Copy(&count, sizeof(count)));
  if (!status.ok()) {
    gathering->CountDown(status, parts_.size() + 1);
    return;
  }
  client->Deliver(key_, [gathering](const Status& outcome, const Payload& payload) {
    gathering->DeliverSamples(outcome, payload);
  });
  size_t offset = 0;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const uint32_t key = key_ + 1 + static_cast<uint32_t>(i);
    const size_t size = parts_[i].elements * SizeOf(type_);
    Payload part = ask == nullptr ? Payload() : values.Part(offset, size);
    status = ask_for(key, parts_[i].precedence(), std::move(part));
    if (!status.ok()) {
      gathering->CountDown(status, parts_.size() - i);
      return;
    }
    client->Deliver(key, [gathering, offset](const Status& outcome, const Payload& payload) {
      gathering->Deliver(outcome, offset, payload);
    });
    offset += size;
  }
}

Status ServedParameters::error() const {
  const std::shared_ptr<ParameterClient> client = client_.lock();
  return client == nullptr ? OkStatus() : client->error();
}

}  // namespace trepak
