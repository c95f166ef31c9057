// Replays a schedule on all ranks of an RNA job: commands come from stdin, and what has happened
// goes to stdout, for tests/fast/test_rna_schedules.py to judge.
//
//   job SIZE CHOICES QUORUM SEED STALENESS ELEMENTS   the first command
//   write RANK VALUE SAMPLES RATE   the i-th gradient is VALUE in its element i, and 0 elsewhere:
//                                   a round's sum shows with which weight each gradient is in it
//   spoil RANK SAMPLES              a gradient that is not finite
//   read RANK                       one round, if one has finished
//   read_all RANK
//   await RANK                      waits for a round, and reads it
//   drain RANK
//   drained                         waits until all ranks have drained
//   settle                          waits until nothing is under way

#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "ops/runtime/rna/rna_fake_job.h"
#include "ops/runtime/rna/rna_messages.h"

namespace trepak {
namespace {

void Check(const Status& status) {
  if (!status.ok()) {
    throw std::runtime_error(std::string(status.message()));
  }
}

class Replay {
 public:
  void Run(const std::string& line) {
    std::istringstream words(line);
    words.exceptions(std::ios::failbit);
    std::string command;
    words >> command;
    if (command == "job") {
      Begin(&words);
    } else if (command == "settle") {
      Settle();
      std::printf("settled %zu\n", Started());
    } else if (command == "drained") {
      Drained();
    } else {
      uint32_t rank = 0;
      words >> rank;
      RunOnRank(command, rank, &words);
    }
  }

  void PrintCounters() {
    for (uint32_t rank = 0; rank < job_->size(); ++rank) {
      const RnaWorker::Counters counters = job_->worker(rank).counters();
      std::printf("counters %" PRIu32, rank);
      for (const uint64_t counter :
           {counters.rounds, counters.contributed, counters.gradients, counters.dropped,
            counters.not_finite, counters.staleness, counters.contributors}) {
        std::printf(" %" PRIu64, counter);
      }
      std::printf("\n");
    }
  }

 private:
  void Begin(std::istringstream* words) {
    uint32_t size = 0;
    RnaCoordinator::Rules rules;
    uint64_t staleness = 0;
    *words >> size >> rules.choices >> rules.quorum >> rules.seed >> staleness >> elements_;
    job_.emplace(size, rules, staleness, kDeadline, Groups{}, 0, elements_);
    // The coordinator probes in a tick of its own; before that nothing is under way either.
    const size_t probes = std::min(size, std::max(rules.choices, rules.quorum));
    WaitUntil([this, probes] { return job_->network.Sent(rna::kProbe) >= probes; });
    Settle();
  }

  void RunOnRank(const std::string& command, uint32_t rank, std::istringstream* words) {
    RnaWorker& worker = job_->worker(rank);
    if (command == "write" || command == "spoil") {
      Write(command == "write", rank, words);
    } else if (command == "read") {
      if (worker.finished() > 0) {
        Read(rank);
      }
    } else if (command == "read_all") {
      while (worker.finished() > 0) {
        Read(rank);
      }
    } else if (command == "await") {
      Check(job_->Await(rank).get());
      Read(rank);
    } else if (command == "drain") {
      drains_.push_back(job_->Drain(rank));
    } else {
      throw std::runtime_error("no command is called " + command);
    }
  }

  void Write(bool finite, uint32_t rank, std::istringstream* words) {
    Gradient gradient;
    if (finite) {
      float value = 0;
      *words >> value;
      gradient.values = Payload::Allocate(elements_ * sizeof(float));
      std::memset(gradient.values.mutable_data(), 0, gradient.values.size());
      static_cast<float*>(gradient.values.mutable_data())[written_++] = value;
    }
    *words >> gradient.samples;
    if (finite) {
      *words >> gradient.rate;
    }
    // Rounds that this rank has taken part in can't have the gradient.
    const uint64_t ended = job_->worker(rank).counters().rounds;
    Check(job_->worker(rank).Write(std::move(gradient)));
    std::printf("wrote %" PRIu32 " %" PRIu64 "\n", rank, ended);
  }

  void Read(uint32_t rank) {
    RnaWorker::Round round;
    Check(job_->worker(rank).Read(&round));
    std::printf("read %" PRIu32 " %" PRIu64 " %" PRIu32 " %a %" PRIu64 " %a", rank, round.number,
                round.initiator, round.contributors, round.samples, round.rate);
    for (size_t i = 0; i < elements_; ++i) {
      const double value = static_cast<const float*>(round.sum.data())[i];
      if (value != 0) {
        std::printf(" %zu:%a", i, value);
      }
    }
    std::printf("\n");
  }

  void Drained() {
    for (std::future<Status>& drain : drains_) {
      Check(drain.get());
    }
    drains_.clear();
  }

  size_t Started() { return job_->network.Sent(rna::kGo) / job_->size(); }

  void Settle() {
    WaitUntil([this] {
      if (!job_->network.Idle()) {
        return false;
      }
      const size_t started = Started();
      for (uint32_t rank = 0; rank < job_->size(); ++rank) {
        if (job_->worker(rank).counters().rounds != started) {
          return false;
        }
      }
      return true;
    });
  }

  static void WaitUntil(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) {
        throw std::runtime_error("something is under way for too long");
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  std::optional<Job> job_;
  size_t elements_ = 0;
  size_t written_ = 0;
  std::vector<std::future<Status>> drains_;
};

int Main() {
  Replay replay;
  try {
    std::string line;
    while (std::getline(std::cin, line)) {
      replay.Run(line);
    }
    replay.PrintCounters();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
}

}  // namespace
}  // namespace trepak

int main() { return trepak::Main(); }
