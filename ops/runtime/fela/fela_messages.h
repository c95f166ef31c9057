// What the token server and workers say to each other. Headers: `round` is the iteration.

#ifndef TREPAK_OPS_RUNTIME_FELA_FELA_MESSAGES_H_
#define TREPAK_OPS_RUNTIME_FELA_FELA_MESSAGES_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "ops/runtime/fela/fela_scheduler.h"
#include "ops/runtime/net/message.h"

namespace trepak::fela {

// Of a worker. `key`: samples that it comes with; 1 if it stays in its iteration until that is
// over; the token that it has trained.
constexpr MessageKind kBegin = KindOf("fela", 1);
constexpr MessageKind kRequest = KindOf("fela", 2);
constexpr MessageKind kReport = KindOf("fela", 3);  // and request

// Of the token server.
constexpr MessageKind kAssign = KindOf("fela", 4);   // a token: an Assignment, as below
constexpr MessageKind kSend = KindOf("fela", 5);     // `key`: the token whose chunk; a Send
constexpr MessageKind kTrained = KindOf("fela", 6);  // `key`: the sub-model whose tokens are done
constexpr MessageKind kOver = KindOf("fela", 7);     // the iteration is
constexpr MessageKind kHere = KindOf("fela", 8);     // the server is, though there is no token
constexpr MessageKind kAhead = KindOf("fela", 9);    // the worker may begin its next iteration

// Of kReport.
struct Report {
  double loss = 0;  // the sum over the token's samples, of a token of the last sub-model
};

// Of kOver.
struct Over {
  uint64_t samples = 0;  // of all workers
  double loss = 0;       // the sum over them
};

struct Send {
  uint32_t kind = 0;  // of the chunk
  uint32_t to = 0;    // the worker that is to have it
};

// An assignment on the wire: 32-bit numbers, first how many inputs it has.
inline Message MessageOfAssignment(const FelaScheduler::Assignment& a) {
  std::vector<uint32_t> words{a.token, a.stage, a.samples, a.recomputes ? 1U : 0U,
                              static_cast<uint32_t>(a.inputs.size())};
  for (const FelaScheduler::Input& input : a.inputs) {
    words.insert(words.end(),
                 {static_cast<uint32_t>(input.kind), input.token, input.holder, input.samples});
  }
  for (const FelaScheduler::Range& range : a.ranges) {
    words.insert(words.end(), {range.first, range.count});
  }
  Message message;
  message.header.kind = kAssign;
  message.payload = Payload::Copy(words.data(), words.size() * sizeof(uint32_t));
  return message;
}

// What of a token is not in the plan, if something is: a clause that goes on after its number.
inline std::string NotInPlan(const FelaPlan& plan, const FelaScheduler::Assignment& a) {
  if (a.stage == 0 || plan.StageOf(a.token) != a.stage) {
    return "of stage " + std::to_string(a.stage);
  }
  if (!plan.MayTrain(a.worker, plan.SubmodelOf(a.stage))) {
    return "of sub-model " + std::to_string(plan.SubmodelOf(a.stage)) + ", which others train";
  }
  for (const FelaScheduler::Input& input : a.inputs) {
    const uint32_t stage = plan.StageOf(input.token);
    if (stage == 0 || plan.IsBackward(stage) || input.holder >= plan.workers() ||
        input.samples > a.samples) {
      return "that reads " + std::to_string(input.samples) + " samples of token " +
             std::to_string(input.token) + " from rank " + std::to_string(input.holder);
    }
  }
  uint64_t samples = 0;
  for (const FelaScheduler::Range& range : a.ranges) {
    samples += range.count;
    if (uint64_t{range.first} + range.count > plan.samples()) {
      return "with " + std::to_string(range.count) + " samples from sample " +
             std::to_string(range.first) + " on";
    }
  }
  return samples == a.samples
             ? ""
             : "of " + std::to_string(a.samples) + " samples that names " + std::to_string(samples);
}

// Reads it, for `worker`. Fails, naming the sender, for bytes that are none, and for what is not in
// the plan.
[[nodiscard]] inline Status ReadAssignment(const Message& message, uint32_t worker,
                                           const FelaPlan& plan, FelaScheduler::Assignment* a) {
  constexpr size_t kHead = 5;
  constexpr size_t kPerInput = 4;
  const std::string sent = "rank " + std::to_string(message.header.sender) + " sent ";
  std::vector<uint32_t> words(message.payload.size() / sizeof(uint32_t));
  if (!words.empty()) {
    std::memcpy(words.data(), message.payload.data(), words.size() * sizeof(uint32_t));
  }
  const size_t inputs = words.size() < kHead ? 0 : words[kHead - 1];
  const size_t ranges_at = kHead + kPerInput * inputs;
  if (message.payload.size() % sizeof(uint32_t) != 0 || words.size() < ranges_at ||
      words.size() < kHead || (words.size() - ranges_at) % 2 != 0) {
    return InvalidArgumentError(sent + "a token of " + std::to_string(message.payload.size()) +
                                " bytes, which is none");
  }
  *a = {worker, words[0], words[1], words[2], words[3] != 0, {}, {}};
  for (size_t at = kHead; at < ranges_at; at += kPerInput) {
    if (words[at] >= kFelaChunkKinds) {
      return InvalidArgumentError(sent + "a token with a chunk of kind " +
                                  std::to_string(words[at]) + ", which there is not");
    }
    a->inputs.push_back(
        {static_cast<FelaChunkKind>(words[at]), words[at + 1], words[at + 2], words[at + 3]});
  }
  for (size_t at = ranges_at; at < words.size(); at += 2) {
    a->ranges.push_back({words[at], words[at + 1]});
  }
  const std::string wrong = NotInPlan(plan, *a);
  return wrong.empty() ? OkStatus()
                       : InvalidArgumentError(sent + "token " + std::to_string(a->token) + " " +
                                              wrong + ", which is not in the plan");
}

}  // namespace trepak::fela

#endif  // TREPAK_OPS_RUNTIME_FELA_FELA_MESSAGES_H_
