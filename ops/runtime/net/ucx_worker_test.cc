#include "ops/runtime/net/ucx_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>

#include "ops/runtime/net/transport_testing.h"

namespace trepak {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr size_t kLarge = 4'000'000;  // is fetched, in memory that both processes have

class Owner : public UcxWorker::Owner {
 public:
  std::function<void()> when_one_comes;
  Status lost;

 private:
  bool Expects(const Header&) override {
    when_one_comes();
    return true;
  }
  void OnArrival(uint64_t, Message) override {}
  void OnRefusal(const Status&) override {}
  void OnLost(const Header&, const Status& status) override { lost = status; }
  void OnSent(uint64_t) override {}
  void OnBroken(uint32_t, const Status&) override {}
};

std::unique_ptr<UcxWorker> Make(uint32_t rank, Owner* owner) {
  std::unique_ptr<UcxWorker> worker;
  const Status status = UcxWorker::Make({true, rank}, owner, &worker);
  EXPECT_TRUE(status.ok()) << status;
  return worker;
}

// Another process: sends one message to the address that it reads, until it is killed.
[[noreturn]] void SendOne(int addresses) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  char address[4096];
  const ssize_t bytes = read(addresses, address, sizeof(address));
  Owner owner;
  const std::unique_ptr<UcxWorker> worker = Make(1, &owner);
  if (bytes <= 0 || !worker->Connect(0, {address, static_cast<size_t>(bytes)}, true).ok()) {
    _exit(1);
  }
  worker->Send(0, 0, Push(1, kLarge), 0);
  while (true) {
    worker->Progress();
  }
}

TEST(UcxWorkerTest, WhoEndsWhileAMessageIsFetchedIsSaidToHaveEnded) {
  int addresses[2];
  ASSERT_EQ(pipe(addresses), 0);
  const pid_t sender = fork();  // before UCX has threads here
  if (sender == 0) {
    SendOne(addresses[0]);
  }
  bool has_come = false;
  Owner owner;
  owner.when_one_comes = [&] {
    has_come = true;
    kill(sender, SIGKILL);
    waitpid(sender, nullptr, 0);
  };
  const std::unique_ptr<UcxWorker> worker = Make(0, &owner);
  const std::string& address = worker->address();
  ASSERT_EQ(write(addresses[1], address.data(), address.size()),
            static_cast<ssize_t>(address.size()));
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (owner.lost.ok() && std::chrono::steady_clock::now() < deadline) {
    worker->Progress();
  }
  ASSERT_TRUE(has_come);
  EXPECT_THAT(
      std::string(owner.lost.message()),
      AllOf(HasSubstr("its process has ended"), HasSubstr("UCX says"), Not(HasSubstr("UCX_TLS"))));
  close(addresses[0]);
  close(addresses[1]);
}

TEST(UcxWorkerTest, PayloadsThatAPeerMayStillReadAreKept) {
  Owner owner;
  const std::unique_ptr<UcxWorker> stands_still = Make(1, &owner);
  std::unique_ptr<UcxWorker> worker = Make(0, &owner);
  ASSERT_TRUE(worker->Connect(1, stands_still->address(), true).ok());
  Message message = Push(1, kLarge);
  auto owner_of_bytes = std::make_shared<Payload>(message.payload);
  const std::weak_ptr<Payload> watch = owner_of_bytes;
  message.payload = Payload(owner_of_bytes->mutable_data(), kLarge, owner_of_bytes);
  owner_of_bytes = nullptr;
  worker->Send(1, 0, std::move(message), 0);
  worker->Progress();
  worker = nullptr;
  EXPECT_FALSE(watch.expired());
}

}  // namespace
}  // namespace trepak
