#include "horovod_ext/runtime/global_parameters.h"

#include <cmath>
#include <utility>

#include "horovod_ext/runtime/summation.h"

namespace trepak {
namespace {

// Not what backward waits for: behind the gradients of whoever uses the same servers.
const Precedence kLate{0, kLastInOrder};

}  // namespace

void ServedParameters::Assign(Payload values, Callback callback) {
  Do([](ParameterClient* client, uint32_t key,
        Payload part) { return client->Assign(key, kLate, std::move(part)); },
     std::move(values), 0, std::move(callback));
}

void ServedParameters::Change(Payload change, uint64_t samples, Callback callback) {
  Scale(type_, change.size(), size_, change.data(), change.mutable_data());
  Do([](ParameterClient* client, uint32_t key,
        Payload part) { return client->Change(key, kLate, std::move(part)); },
     std::move(change), samples * size_, std::move(callback));
}

void ServedParameters::Fetch(Callback callback) {
  Do([](ParameterClient* client, uint32_t key, Payload) { return client->Fetch(key, kLate); },
     Payload(), 0, std::move(callback));
}

void ServedParameters::Do(Ask ask, Payload values, uint64_t samples, Callback callback) {
  const std::shared_ptr<ParameterClient> client = client_.lock();
  if (client == nullptr) {
    callback(UnavailableError("the parameter servers have ended"), Payload(), 0);
    return;
  }
  Payload count = Payload::Allocate(sizeof(double));
  *static_cast<double*>(count.mutable_data()) = static_cast<double>(samples);
  Status status = ask(client.get(), key_, std::move(values));
  if (status.ok()) {
    status = ask(client.get(), key_ + 1, std::move(count));
  }
  if (!status.ok()) {
    callback(status, Payload(), 0);
    return;
  }
  const auto counted = [](const Payload& payload) {
    return static_cast<uint64_t>(std::llround(*static_cast<const double*>(payload.data())));
  };
  const std::weak_ptr<ParameterClient> weak = client;
  client->Deliver(key_, [weak, key = key_ + 1, counted, callback = std::move(callback)](
                            const Status& outcome, Payload parameters) {
    const std::shared_ptr<ParameterClient> still = weak.lock();
    if (!outcome.ok() || still == nullptr) {
      callback(outcome.ok() ? UnavailableError("the parameter servers have ended") : outcome,
               Payload(), 0);
      return;
    }
    still->Deliver(key, [callback, counted, parameters](const Status& last, Payload payload) {
      callback(last, parameters, last.ok() ? counted(payload) : 0);
    });
  });
}

Status ServedParameters::error() const {
  const std::shared_ptr<ParameterClient> client = client_.lock();
  return client == nullptr ? OkStatus() : client->error();
}

}  // namespace trepak
