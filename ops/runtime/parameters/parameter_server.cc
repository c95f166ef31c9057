#include "ops/runtime/parameters/parameter_server.h"

#include <ctime>
#include <string>

#include "ops/runtime/parameters/parameter_messages.h"
#include "ops/runtime/parameters/summation.h"

namespace trepak {
namespace {

std::string NameOf(const Header& header) {
  return "slice " + std::to_string(header.slice) + " of variable " + std::to_string(header.key);
}

// CPU time of the calling thread.
uint64_t ThreadNanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

Precedence PrecedenceOf(const Header& header) { return {header.priority, header.order}; }

Status WrongRound(const Header& header, uint64_t round) {
  return InternalError("rank " + std::to_string(header.sender) + " is in round " +
                       std::to_string(header.round) + " of " + NameOf(header) +
                       ", the server in round " + std::to_string(round));
}

}  // namespace

Status ParameterServer::Handle(Message message) {
  const uint64_t begin = ThreadNanoseconds();
  bytes_.fetch_add(message.payload.size(), std::memory_order_relaxed);
  Status status = Serve(std::move(message));
  nanoseconds_.fetch_add(ThreadNanoseconds() - begin, std::memory_order_relaxed);
  return status;
}

Status ParameterServer::Serve(Message message) {
  const Header& header = message.header;
  SliceState& slice = slices_[IdOf(header)];
  switch (header.kind) {
    case parameters::kPush:
      return Push(&slice, header, std::move(message.payload));
    case parameters::kPull:
      return Pull(&slice, header);
    case parameters::kDelta:
      return Delta(&slice, header, message.payload);
    case parameters::kAssign:
      return Assign(&slice, header, message.payload);
    default:
      return Unexpected(header, "a parameter server");
  }
}

Status ParameterServer::CheckShape(SliceState* slice, const Header& header, size_t bytes) const {
  if (!CanAdd(header.type)) {
    return InvalidArgumentError("rank " + std::to_string(header.sender) +
                                " sent nothing that can be added up for " + NameOf(header));
  }
  if (slice->type == ElementType::kNone) {
    slice->type = header.type;
    slice->bytes = bytes;
    slice->contributed.assign(options().size, false);
  }
  if (header.type != slice->type || bytes != slice->bytes) {
    return InvalidArgumentError(
        "rank " + std::to_string(header.sender) + " sent " + std::to_string(bytes) +
        " bytes of type " + std::to_string(static_cast<int>(header.type)) + " for " +
        NameOf(header) + ", others " + std::to_string(slice->bytes) + " of type " +
        std::to_string(static_cast<int>(slice->type)) + ": build the same model on every rank");
  }
  return OkStatus();
}

Status ParameterServer::Push(SliceState* slice, const Header& header, Payload payload) {
  TREPAK_RETURN_IF_ERROR(CheckShape(slice, header, payload.size()));
  if (header.round != slice->round || slice->contributed[header.sender]) {
    return WrongRound(header, slice->round);
  }
  if (slice->contributions == 0) {
    slice->first = Clock::now();
  }
  slice->contributed[header.sender] = true;
  ++slice->contributions;
  Add(slice, header.sender, std::move(payload));
  if ((header.flags & parameters::kWantsAnswer) != 0) {
    slice->askers.push_back({header.sender, PrecedenceOf(header)});
  }
  return slice->contributions == options().size ? FinishRound(slice, header) : OkStatus();
}

void ParameterServer::Add(SliceState* slice, uint32_t rank, Payload payload) const {
  if (server_options_.fixed_order) {
    slice->kept.resize(options().size);
    slice->kept[rank] = std::move(payload);
  } else if (slice->contributions == 1) {
    slice->sum = std::move(payload);  // the first one's memory is the sum's
  } else {
    Accumulate(slice->type, slice->bytes, 1.0, payload.data(), slice->sum.mutable_data());
  }
}

void ParameterServer::SumInOrder(SliceState* slice) const {
  slice->sum = std::move(slice->kept[0]);
  for (uint32_t rank = 1; rank < options().size; ++rank) {
    Accumulate(slice->type, slice->bytes, 1.0, slice->kept[rank].data(), slice->sum.mutable_data());
  }
  slice->kept.clear();
}

Status ParameterServer::FinishRound(SliceState* slice, const Header& header) {
  if (server_options_.fixed_order) {
    SumInOrder(slice);
  }
  slice->result = std::move(slice->sum);
  slice->sum = Payload();
  slice->has_result = true;
  slice->contributions = 0;
  slice->contributed.assign(options().size, false);
  ++slice->round;
  std::vector<Asker> askers;
  askers.swap(slice->askers);
  for (const Asker& asker : askers) {
    TREPAK_RETURN_IF_ERROR(Answer(header, asker, slice->type, slice->round - 1, slice->result));
  }
  return OkStatus();
}

Status ParameterServer::Pull(SliceState* slice, const Header& header) {
  const Asker asker{header.sender, PrecedenceOf(header)};
  if (slice->has_result && header.round + 1 == slice->round) {
    return Answer(header, asker, slice->type, header.round, slice->result);
  }
  if (slice->version > 0) {
    return Answer(header, asker, slice->type, slice->version, slice->result);
  }
  if (header.round != slice->round) {
    return WrongRound(header, slice->round);
  }
  slice->askers.push_back(asker);
  return OkStatus();
}

Status ParameterServer::Assign(SliceState* slice, const Header& header, const Payload& payload) {
  TREPAK_RETURN_IF_ERROR(CheckShape(slice, header, payload.size()));
  slice->result = Payload::Copy(payload.view());
  ++slice->version;
  return AnswerIfWanted(*slice, header);
}

Status ParameterServer::Delta(SliceState* slice, const Header& header, const Payload& payload) {
  TREPAK_RETURN_IF_ERROR(CheckShape(slice, header, payload.size()));
  if (slice->version == 0) {
    return FailedPreconditionError("rank " + std::to_string(header.sender) + " changes " +
                                   NameOf(header) + ", which has no value yet");
  }
  // Answers that are on their way share the old value's memory: they must not change.
  Payload value = Payload::Copy(slice->result.data(), slice->bytes);
  Accumulate(slice->type, slice->bytes, server_options_.delta_factor, payload.data(),
             value.mutable_data());
  slice->result = std::move(value);
  ++slice->version;
  return AnswerIfWanted(*slice, header);
}

Status ParameterServer::AnswerIfWanted(const SliceState& slice, const Header& header) {
  if ((header.flags & parameters::kWantsAnswer) == 0) {
    return OkStatus();
  }
  return Answer(header, {header.sender, PrecedenceOf(header)}, slice.type, slice.version,
                slice.result);
}

Status ParameterServer::Answer(const Header& about, const Asker& asker, ElementType type,
                               uint64_t round, const Payload& payload) {
  Message answer;
  answer.header.kind = parameters::kAnswer;
  answer.header.type = type;
  answer.header.key = about.key;
  answer.header.slice = about.slice;
  answer.header.round = round;
  answer.payload = payload;
  return Send(asker.rank, asker.precedence, std::move(answer));
}

Status ParameterServer::Tick(Clock::time_point now) {
  for (const auto& [id, slice] : slices_) {
    if (slice.contributions == 0) {
      continue;
    }
    std::string missing;
    for (uint32_t rank = 0; rank < options().size; ++rank) {
      if (slice.contributed[rank]) {
        continue;
      }
      if (HasLeft(rank)) {
        return UnavailableError("rank " + std::to_string(rank) +
                                " left the job before it pushed variable " +
                                std::to_string(id >> 32) + " in round " +
                                std::to_string(slice.round) + ", which others have");
      }
      missing += (missing.empty() ? "rank " : ", rank ") + std::to_string(rank);
    }
    if (now - slice.first < options().deadline) {
      continue;
    }
    return DeadlineExceededError("its server waited " +
                                 std::to_string(options().deadline.count() / 1000) + " s for " +
                                 missing + " to push variable " + std::to_string(id >> 32) +
                                 " in round " + std::to_string(slice.round));
  }
  return OkStatus();
}

}  // namespace trepak
