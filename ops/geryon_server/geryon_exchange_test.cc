#include "ops/geryon_server/geryon_exchange.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <future>
#include <thread>

#include "ops/runtime/net/zmq_transport.h"
#include "tensorflow/core/framework/control_flow.h"
#include "tensorflow/core/framework/rendezvous.h"
#include "tensorflow/core/platform/status.h"

namespace trepak {
namespace {

using tensorflow::DT_FLOAT;
using tensorflow::Tensor;

constexpr std::chrono::seconds kPatience{30};

std::string KeyOf(const std::string& name) {
  return tensorflow::Rendezvous::CreateKey("/job:ps/replica:0/task:0/device:CPU:0", 1,
                                           "/job:worker/replica:0/task:0/device:CPU:0", name,
                                           tensorflow::FrameAndIter(0, 0));
}

Tensor Numbered(std::initializer_list<int64_t> sizes) {
  Tensor tensor(DT_FLOAT, tensorflow::TensorShape(sizes));
  for (int64_t i = 0; i < tensor.NumElements(); ++i) {
    tensor.flat<float>()(i) = static_cast<float>(i);
  }
  return tensor;
}

// A task that answers what it is told to.
class Task {
 public:
  explicit Task(Found answer = Found()) : found(std::move(answer)) {
    const Status status = TensorExchange::Start(
        "127.0.0.1",
        [this](int64_t step, const std::string& key, const TensorExchange::Callback& callback) {
          ++asked;
          last_step = step;
          last_key = key;
          if (answers) {
            callback(found);
          }
        },
        [](const std::function<void()>& work) { std::thread(work).detach(); }, &exchange);
    EXPECT_TRUE(status.ok()) << status;
  }

  std::future<Found> Fetch(const Task& from, const std::string& name) {
    auto promise = std::make_shared<std::promise<Found>>();
    last_number = exchange->Fetch(from.exchange->here(), 7, KeyOf(name),
                                  [promise](const Found& outcome) { promise->set_value(outcome); });
    return promise->get_future();
  }

  const Found found;
  std::atomic<int> asked{0};
  std::atomic<int64_t> last_step{0};
  std::string last_key;
  uint64_t last_number = 0;
  std::atomic<bool> answers{true};
  std::unique_ptr<TensorExchange> exchange;  // the last: its thread uses all the others
};

Found Get(std::future<Found> future) {
  EXPECT_EQ(future.wait_for(kPatience), std::future_status::ready);
  return future.get();
}

TEST(TensorExchangeTest, BringsTensorsOfAllSizes) {
  for (const Tensor& tensor :
       {Numbered({}), Numbered({0}), Numbered({3, 5}), Numbered({1 << 20})}) {
    Found found;
    found.tensor = tensor;
    Task owner(found);
    Task asker;
    const Found got = Get(asker.Fetch(owner, "edge"));
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_TRUE(got.carried);
    EXPECT_EQ(got.tensor.shape(), tensor.shape());
    EXPECT_EQ(got.tensor.tensor_data(), tensor.tensor_data());
    EXPECT_EQ(owner.last_step, 7);
    EXPECT_EQ(owner.last_key, KeyOf("edge"));
  }
}

TEST(TensorExchangeTest, MatricesHaveTheLowPriority) {
  const std::vector<uint64_t> before = TensorExchange::BytesByPriority();
  Found found;
  found.tensor = Numbered({10, 10});
  Task owner(found);
  Task asker;
  Get(asker.Fetch(owner, "kernel"));
  const std::vector<uint64_t> after = TensorExchange::BytesByPriority();
  EXPECT_EQ(after[0], before[0]);
  EXPECT_EQ(after[1], before[1] + 400);
}

TEST(TensorExchangeTest, PassesOnWhatIsNoTensor) {
  Found dead;
  dead.is_dead = true;
  Found not_carried;
  not_carried.carried = false;
  Found failed;
  failed.status = absl::AbortedError("the step was aborted");
  Found derived;
  derived.status = tensorflow::StatusGroup::MakeDerived(failed.status);
  for (const Found& answer : {dead, not_carried, failed, derived}) {
    Task owner(answer);
    Task asker;
    const Found got = Get(asker.Fetch(owner, "edge"));
    EXPECT_EQ(got.status, answer.status);
    EXPECT_EQ(got.is_dead, answer.is_dead);
    EXPECT_EQ(got.carried, answer.carried);
    EXPECT_FALSE(got.lost);
  }
}

TEST(TensorExchangeTest, TaskThatEndsIsLost) {
  auto owner = std::make_unique<Task>();
  owner->answers = false;
  Task asker;
  std::future<Found> waiting = asker.Fetch(*owner, "edge");
  while (owner->asked == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  owner = nullptr;
  const Found got = Get(std::move(waiting));
  EXPECT_TRUE(absl::IsUnavailable(got.status)) << got.status;
  EXPECT_TRUE(got.lost);
}

TEST(TensorExchangeTest, TaskThatCannotBeReachedIsLeftToGrpc) {
  Task owner;
  ExchangeAddress wrong = owner.exchange->here();
  wrong.secret[0] ^= 1;
  Task asker;
  std::promise<Found> promise;
  asker.exchange->Fetch(wrong, 7, KeyOf("edge"),
                        [&](const Found& found) { promise.set_value(found); });
  const Found got = Get(promise.get_future());
  EXPECT_TRUE(got.status.ok()) << got.status;
  EXPECT_FALSE(got.carried);
  EXPECT_TRUE(got.lost);
  EXPECT_EQ(owner.asked, 0);
}

TEST(TensorExchangeTest, NothingIsLookedForBeforeThereIsAWayBack) {
  // Plays a task whose own flows can't be reached.
  class Deaf : public Transport::Receiver {
    void OnMessage(Message) override {}
    void OnFailure(uint32_t, const Status&) override {}
    void OnTick() override {}
  } deaf;
  Task owner;
  ExchangeAddress here;
  here.id = 5;
  here.transport = "tcp://127.0.0.1:1";
  ZmqTransport::Options options;
  options.rank = here.id;
  options.host = "127.0.0.1";
  options.secret = MakeSecret();
  std::unique_ptr<ZmqTransport> transport;
  ASSERT_TRUE(ZmqTransport::Start(options, &deaf, &transport).ok());
  FlowTarget target;
  target.peer = owner.exchange->here().id;
  target.address = owner.exchange->here().transport;
  target.secret = owner.exchange->here().secret;
  ASSERT_TRUE(transport->Open(target, kPatience).ok());
  Flow flow(transport.get(), here.id, target.peer, 0);
  ASSERT_TRUE(flow.Send(wire::Introduction(here, true)).ok());
  Message request;
  request.header.kind = wire::kRequest;
  request.payload = Payload::Copy(std::string(8, '\0') + KeyOf("edge"));
  ASSERT_TRUE(flow.Send(std::move(request)).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(owner.asked, 0);
}

TEST(TensorExchangeTest, ForgottenRequestsEndOnce) {
  Task owner;
  owner.answers = false;
  Task asker;
  std::future<Found> waiting = asker.Fetch(owner, "edge");
  asker.exchange->Forget(asker.last_number, absl::CancelledError("no more"));
  asker.exchange->Forget(asker.last_number, absl::CancelledError("again"));
  EXPECT_EQ(Get(std::move(waiting)).status, absl::CancelledError("no more"));
}

TEST(TensorExchangeTest, AddressesSurviveTheWire) {
  ExchangeAddress sent;
  sent.id = 0x01020304;
  sent.secret = MakeSecret();
  sent.transport = "tcp://10.0.0.1:4000";
  ExchangeAddress got;
  ASSERT_TRUE(got.Decode(sent.Encode()));
  EXPECT_EQ(got.id, sent.id);
  EXPECT_EQ(got.secret, sent.secret);
  EXPECT_EQ(got.transport, sent.transport);
  EXPECT_FALSE(got.Decode(sent.Encode().substr(0, 36)));
  EXPECT_FALSE(got.Decode(""));
}

}  // namespace
}  // namespace trepak
