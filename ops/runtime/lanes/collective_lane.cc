#include "ops/runtime/lanes/collective_lane.h"

#include <algorithm>
#include <utility>

namespace trepak {
namespace {

// The share of ranks that have pushed a gradient among those that say something, if all have:
// rounding takes less from 1, and one rank of 50,000 more.
constexpr float kAll = 1.0F - 1e-5F;

constexpr uint64_t kNoWindow = 0;

}  // namespace

CollectiveLane::CollectiveLane(Options options, const std::vector<Variable>& variables,
                               std::shared_ptr<CollectiveCalls> calls)
    : options_(std::move(options)),
      calls_(std::move(calls)),
      gradients_(variables.size()),
      pushed_(variables.size(), 0.0F),
      schedule_(options_.rules) {
  size_t bytes = 0;
  for (size_t place = 0; place < variables.size(); ++place) {
    gradients_[place].variable = variables[place];
    places_[variables[place].key] = place;
    bytes += variables[place].bytes();
    urgent_ += bytes <= options_.rules.urgent_bytes ? 1 : 0;
  }
}

GradientRound* CollectiveLane::FindRound(uint32_t key) {
  const auto found = places_.find(key);
  return found == places_.end() ? nullptr : &gradients_[found->second].last;
}

std::string CollectiveLane::Whose(uint32_t key) const {
  const auto found = places_.find(key);
  return options_.me + ": " +
         (found == places_.end() ? "variable " + std::to_string(key)
                                 : gradients_[found->second].variable.name);
}

Status CollectiveLane::PushGradient(uint32_t key, Precedence, Payload values, double factor,
                                    bool average, bool) {
  Turn turn;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    TREPAK_RETURN_IF_ERROR(error_);
    const auto found = places_.find(key);
    if (found == places_.end()) {
      return NotFoundError(Whose(key) + " is not known");
    }
    Gradient& gradient = gradients_[found->second];
    const Variable& variable = gradient.variable;
    const size_t bytes = variable.bytes();
    if (values.size() != bytes) {
      return InvalidArgumentError(options_.me + " pushed " + std::to_string(values.size()) +
                                  " bytes for " + variable.name + ", which has " +
                                  std::to_string(variable.elements) + " elements");
    }
    TREPAK_RETURN_IF_ERROR(gradient.last.CheckDelivered(Whose(key)));
    gradient.last.Begin(schedule_.PiecesOf(bytes), bytes);
    gradient.values = std::move(values);
    gradient.factor = factor;
    gradient.average = average;
    if (found->second < urgent_) {
      for (const PieceSchedule::Piece& piece : schedule_.Cut(found->second, bytes)) {
        turn.push_back(SumOf(piece, kNoWindow));
      }
    } else {
      pushed_[found->second] = bytes > 0 ? 1.0F : 0.0F;
      Ask(&turn);
    }
  }
  Start(std::move(turn));
  return OkStatus();
}

void CollectiveLane::Ask(Turn* turn) {
  const bool pushed = std::find(pushed_.begin(), pushed_.end(), 1.0F) != pushed_.end();
  if (asking_ || older_ > 0 || !error_.ok() || (schedule_.empty() && !pushed)) {
    return;
  }
  asking_ = true;
  std::vector<float> said = pushed_;
  said.push_back(1.0F);  // this rank takes part; one that has called join() says 0 to everything
  const size_t bytes = said.size() * sizeof(float);
  CollectiveCalls::Sum sum;
  sum.name = options_.name;
  sum.type = ElementType::kFloat32;
  sum.input = Payload::Copy(said.data(), bytes);
  sum.output = Payload::Allocate(bytes);
  sum.average = true;
  sum.done = [self = shared_from_this(), shares = sum.output](const Status& outcome) {
    self->Decide(outcome, shares);
  };
  turn->push_back(std::move(sum));
}

void CollectiveLane::Start(Turn turn) {
  for (CollectiveCalls::Sum& sum : turn) {
    const Status status = calls_->StartSum(std::move(sum));
    if (!status.ok()) {
      Fail(status);
      return;
    }
  }
}

void CollectiveLane::Decide(const Status& status, const Payload& shares) {
  if (!status.ok()) {
    Fail(status);
    return;
  }
  Turn turn;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!error_.ok()) {
      return;
    }
    asking_ = false;
    const auto* const share = static_cast<const float*>(shares.data());
    for (size_t place = 0; place < gradients_.size(); ++place) {
      if (share[place] > kAll * share[gradients_.size()]) {
        schedule_.Add(place, gradients_[place].variable.bytes());
        pushed_[place] = 0.0F;
      }
    }
    older_ += newest_;
    newest_ = 0;
    ++window_;
    for (const PieceSchedule::Piece& piece : schedule_.Next()) {
      turn.push_back(SumOf(piece, window_));
      ++newest_;
    }
    Ask(&turn);
  }
  Start(std::move(turn));
}

CollectiveCalls::Sum CollectiveLane::SumOf(const PieceSchedule::Piece& piece, uint64_t window) {
  Gradient& gradient = gradients_[piece.variable];
  CollectiveCalls::Sum sum;
  // The same in every step: Horovod remembers what it has agreed on once.
  sum.name =
      options_.name + "." + std::to_string(piece.variable) + "." + std::to_string(piece.index);
  sum.type = gradient.variable.type;
  sum.input = gradient.values.Part(piece.offset, piece.bytes);
  sum.output = gradient.last.result().Part(piece.offset, piece.bytes);
  sum.factor = gradient.factor;
  sum.average = gradient.average;
  sum.done = [self = shared_from_this(), piece, window](const Status& outcome) {
    self->Finish(outcome, piece, window);
  };
  return sum;
}

void CollectiveLane::Finish(const Status& status, const PieceSchedule::Piece& piece,
                            uint64_t window) {
  if (!status.ok()) {
    Fail(status);
    return;
  }
  Turn turn;
  GradientRound::Delivery delivery;
  Payload values;  // whose memory is given back when the lock is not held
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!error_.ok()) {
      return;
    }
    Gradient& gradient = gradients_[piece.variable];
    delivery = gradient.last.Arrive(piece.index);
    if (gradient.last.is_complete()) {
      values = std::move(gradient.values);
    }
    if (window != kNoWindow) {
      --(window == window_ ? newest_ : older_);
      Ask(&turn);
    }
  }
  Start(std::move(turn));  // first: what it delivers to may compute
  delivery.Run();
}

void CollectiveLane::Fail(const Status& status) {
  std::vector<Callback> callbacks;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (error_.ok()) {
      error_ = status;
    }
    for (Gradient& gradient : gradients_) {
      if (Callback waiting = gradient.last.Abandon()) {
        callbacks.push_back(std::move(waiting));
      }
    }
  }
  for (const Callback& callback : callbacks) {
    callback(status, Payload());
  }
}

}  // namespace trepak
