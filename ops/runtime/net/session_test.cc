#include "ops/runtime/net/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <set>
#include <thread>

namespace trepak {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr size_t kWorker = 0;
constexpr size_t kCoordinator = 1;

// Notes from whom messages come.
class Listener : public Endpoint {
 public:
  explicit Listener(const JobOptions& job,
                    std::shared_ptr<ErrorLatch> errors = std::make_shared<ErrorLatch>())
      : Endpoint(job.endpoint(), std::move(errors)) {}
  ~Listener() override { Stop(); }

  void Say() {
    Message message;
    message.header.kind = KindOf("test", 1);
    Broadcast(message);
  }

  // Has it take so long from now on to hear a message.
  void set_slowness(milliseconds slowness) { slowness_ = slowness; }

  void Break(const std::string& why) { Fail(InternalError(why)); }

  using Endpoint::error;

  // The ranks that have said something, when there are so many, or 10 s are over.
  std::set<uint32_t> Heard(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(10), [&] { return heard_.size() >= count; });
    return heard_;
  }

 protected:
  Status Handle(Message message) override {
    std::this_thread::sleep_for(slowness_.load());
    std::lock_guard<std::mutex> lock(mutex_);
    heard_.insert(message.header.sender);
    changed_.notify_all();
    return OkStatus();
  }
  Status Tick(Clock::time_point) override { return OkStatus(); }
  void Failed(const Status&) override {}

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<uint32_t> heard_;
  std::atomic<milliseconds> slowness_{milliseconds(0)};
};

JobOptions JobOf(uint32_t rank, uint32_t size) {
  static const Secret kSecret = MakeSecret();
  JobOptions job;
  job.rank = rank;
  job.size = size;
  job.host = "127.0.0.1";
  job.secret = kSecret;
  job.deadline = milliseconds(20'000);
  return job;
}

// A worker on each of the members, the coordinator on the first.
Session::Parts PartsOf(const JobOptions& job, const std::vector<uint32_t>& members) {
  Session::Parts parts(2);
  const auto errors = std::make_shared<ErrorLatch>();  // of all endpoints of a process
  parts[kWorker] = {std::make_shared<Listener>(job, errors), kCoordinator, {members.front()}, {46}};
  parts[kCoordinator] = {nullptr, kWorker, members, {46}};
  if (job.rank == members.front()) {
    parts[kCoordinator].endpoint = std::make_shared<Listener>(job, errors);
  }
  return parts;
}

// Opens a session per rank, all members of one group, and connects them.
void OpenAll(const std::vector<Session*>& sessions) {
  std::vector<uint32_t> members;
  for (uint32_t rank = 0; rank < sessions.size(); ++rank) {
    members.push_back(rank);
  }
  std::vector<Session::Addresses> addresses(2);
  for (const uint32_t rank : members) {
    const JobOptions job = JobOf(rank, static_cast<uint32_t>(sessions.size()));
    const Status opened = sessions[rank]->Open(job, PartsOf(job, members));
    ASSERT_TRUE(opened.ok()) << opened;
    const Session::Addresses here = sessions[rank]->addresses();
    addresses[kWorker].push_back(here[kWorker]);
    addresses[kCoordinator].push_back(here[kCoordinator]);
    EXPECT_FALSE(here[kWorker].empty());
    EXPECT_EQ(here[kCoordinator].empty(), rank != 0);
  }
  for (Session* const session : sessions) {
    const Status connected = session->Connect(addresses);
    ASSERT_TRUE(connected.ok()) << connected;
  }
}

// Every worker talks to the coordinator, and the other way round.
void CheckThatAllTalk(const std::vector<Session*>& sessions) {
  const auto coordinator = sessions[0]->Find<Listener>(kCoordinator);
  std::set<uint32_t> everyone;
  for (uint32_t rank = 0; rank < sessions.size(); ++rank) {
    everyone.insert(rank);
    sessions[rank]->Find<Listener>(kWorker)->Say();
  }
  EXPECT_EQ(coordinator->Heard(everyone.size()), everyone);
  coordinator->Say();
  for (Session* const session : sessions) {
    EXPECT_EQ(session->Find<Listener>(kWorker)->Heard(1), std::set<uint32_t>{0});
  }
}

TEST(SessionTest, PartsTalkToTheirPeers) {
  Session first("echo");
  Session second("echo");
  Session third("echo");
  const std::vector<Session*> all = {&first, &second, &third};
  OpenAll(all);
  CheckThatAllTalk(all);
  EXPECT_EQ(second.Find<Listener>(kCoordinator), nullptr);
  for (Session* const session : all) {
    session->Close();
  }
}

TEST(SessionTest, OpensAgainWithOtherMembers) {
  Session first("echo");
  Session second("echo");
  Session third("echo");
  for (const std::vector<Session*>& members :
       {std::vector<Session*>{&first, &second, &third},
        {&third, &first},  // the second has gone, and the third is the first rank now
        {&third, &first, &second}}) {
    OpenAll(members);
    CheckThatAllTalk(members);
    for (Session* const session : members) {
      session->Close();
    }
  }
}

// A rank that ended before could be no more than a lost connection to those that are slow to hear.
TEST(SessionTest, WhoFailsEndsWhenTheOthersKnowWhy) {
  Session first("echo");
  Session second("echo");
  OpenAll({&first, &second});
  const auto coordinator = first.Find<Listener>(kCoordinator);
  coordinator->set_slowness(milliseconds(1000));
  const auto worker = second.Find<Listener>(kWorker);
  worker->Say();
  worker->Break("the disk is full");
  EXPECT_TRUE(coordinator->error().ok());
  second.Close(milliseconds(20'000));
  EXPECT_THAT(std::string(coordinator->error().message()),
              HasSubstr("rank 1 gave up: the disk is full"));
  const auto began = std::chrono::steady_clock::now();
  first.Close(milliseconds(20'000));  // nobody is left to hear of it
  EXPECT_LT(std::chrono::steady_clock::now() - began, milliseconds(10'000));
}

TEST(SessionTest, WhatIsWrongIsSaid) {
  Session session("echo");
  session.Close();  // does nothing
  EXPECT_THAT(std::string(session.Connect({}).message()), HasSubstr("echo does not run"));
  EXPECT_EQ(session.Find<Listener>(kWorker), nullptr);
  const JobOptions job = JobOf(0, 1);
  EXPECT_THAT(
      std::string(session.Open(job, {{std::make_shared<Listener>(job), 1, {0}, {46}}}).message()),
      HasSubstr("nobody to talk to"));
  ASSERT_TRUE(session.Open(job, PartsOf(job, {0})).ok());
  EXPECT_THAT(std::string(session.Open(job, PartsOf(job, {0})).message()),
              HasSubstr("runs already"));
  EXPECT_THAT(std::string(session.Connect({{"x"}}).message()), HasSubstr("2 parts, not 1"));
  EXPECT_THAT(std::string(session.Connect({{"x"}, {}}).message()), HasSubstr("1 ranks, not 0"));
  session.Close();
  EXPECT_EQ(session.Find<Listener>(kWorker), nullptr);
}

}  // namespace
}  // namespace trepak
