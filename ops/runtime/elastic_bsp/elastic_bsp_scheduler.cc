#include "ops/runtime/elastic_bsp/elastic_bsp_scheduler.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

namespace trepak {

void Expectation::Add(Kind kind, double seconds) {
  if (kind == Kind::kMean) {
    latest_.push_back(seconds);
    if (latest_.size() > kWindow) {
      latest_.pop_front();
    }
    expected_ =
        std::accumulate(latest_.begin(), latest_.end(), 0.0) / static_cast<double>(latest_.size());
  } else if (kind == Kind::kExponential && has_any_) {
    expected_ += kWeight * (seconds - expected_);
  } else {
    expected_ = seconds;
  }
  has_any_ = true;
}

ElasticBspScheduler::Orders ElasticBspScheduler::Begin(double now) {
  in_ = workers_.size();
  first_end_ = std::numeric_limits<double>::infinity();
  for (Worker& worker : workers_) {
    StopWaiting(&worker, now);
    worker.active = true;
    worker.out = false;
    worker.late = false;
    worker.has_gone_on = false;
    worker.granted = worker.taken;  // what was granted before the pause is void
    worker.first = static_cast<int64_t>(worker.taken);
    worker.latest = now;
  }
  Orders orders;
  if (rules_.model == Model::kElasticBsp) {
    BeginSuperstep(now, &orders);
    is_timed_ = false;  // workers begin when they have set up their training
  } else {
    GrantLead(now, &orders);
  }
  return orders;
}

ElasticBspScheduler::Orders ElasticBspScheduler::End(uint32_t number, double now,
                                                     double communication, double held_up) {
  Orders orders;
  Worker& worker = workers_[number];
  Measure(&worker, now, communication, held_up);
  ++worker.taken;
  ++counters_.steps;
  worker.latest = now;
  worker.has_gone_on = true;
  first_end_ = std::min(first_end_, now);
  if (worker.out) {
    ComeBack(number, &orders);
  }
  if (worker.taken >= worker.granted) {
    BeginToWait(&worker, now);
  }
  Proceed(now, &orders);
  return orders;
}

void ElasticBspScheduler::ComeBack(uint32_t number, Orders* orders) {
  Worker& worker = workers_[number];
  if (!worker.late) {
    worker.late = true;
    orders->back.push_back(number);
  }
  const bool leads = rules_.model != Model::kElasticBsp;
  if (!worker.active || (!leads && worker.taken < worker.granted)) {
    return;  // it does not know of the barriers that the others have passed
  }
  if (leads) {
    worker.first = static_cast<int64_t>(worker.taken) - Slowest().value_or(0);
  }
  worker.out = false;
  ++in_;
}

void ElasticBspScheduler::Measure(Worker* worker, double now, double communication,
                                  double held_up) {
  const auto number = static_cast<uint32_t>(worker - workers_.data());
  const double since = now - worker->latest;
  // A step in which the others have gone on says nothing of the next ones, but two in a row do, and
  // then those before them do not.
  const bool stands_still = worker->out && (!worker->late || since > patience(number));
  const bool is_second = stands_still && worker->stood_still;
  if (!worker->has_gone_on) {  // it began at some time after a pause, and the very first compiles
    worker->stood_still = is_second;
    return;
  }
  worker->stood_still = stands_still && !is_second;
  if (worker->stood_still) {
    return;
  }
  if (is_second) {
    worker->computing = Expectation();
    worker->communication = Expectation();
  }
  held_up = std::clamp(held_up, 0.0, since);
  counters_.waiting += held_up;
  const double interval = since - held_up;
  communication = std::clamp(communication, 0.0, interval);
  worker->computing.Add(rules_.prediction, interval - communication);
  worker->communication.Add(rules_.prediction, communication);
  worker->measured = true;
  if (recorded_.size() < rules_.most_recorded) {
    recorded_.push_back({number, now, interval - communication, communication});
  }
  if (is_timed_ && !worker->out && worker->interval > 0) {
    const auto steps = static_cast<double>(worker->since_first() + 1);
    const double predicted = superstep_began_ + steps * worker->interval;
    ++counters_.predictions;
    counters_.error += std::abs(now - predicted) / worker->interval;
  }
}

ElasticBspScheduler::Orders ElasticBspScheduler::Pause(uint32_t worker, double now) {
  Orders orders;
  in_ -= IsIn(workers_[worker]) ? 1 : 0;
  workers_[worker].active = false;
  StopWaiting(&workers_[worker], now);
  Proceed(now, &orders);
  return orders;
}

double ElasticBspScheduler::patience(uint32_t worker) const {
  if (!workers_[worker].measured) {
    return std::numeric_limits<double>::infinity();
  }
  const double long_time = rules_.patience_factor * workers_[worker].expected();
  return std::min(rules_.most_patience_seconds, std::max(rules_.patience_seconds, long_time));
}

ElasticBspScheduler::Orders ElasticBspScheduler::Tick(double now) {
  Orders orders;
  for (uint32_t number = 0; number < workers_.size() && waiting_ > 0; ++number) {
    const Worker& worker = workers_[number];
    if (IsIn(worker) && !worker.waits && now - Since(worker) > patience(number)) {
      orders.taken_out.push_back(number);
    }
  }
  for (const uint32_t number : orders.taken_out) {
    workers_[number].out = true;
    workers_[number].late = false;
    --in_;
    ++counters_.taken_out;
  }
  if (!orders.taken_out.empty()) {
    Proceed(now, &orders);
  }
  return orders;
}

ElasticBspScheduler::Orders ElasticBspScheduler::TakeOut(uint32_t worker, double now) {
  Orders orders;
  if (IsIn(workers_[worker])) {
    StopWaiting(&workers_[worker], now);
    workers_[worker].out = true;
    workers_[worker].late = false;
    --in_;
    ++counters_.taken_out;
    orders.taken_out.push_back(worker);
    Proceed(now, &orders);
  }
  return orders;
}

std::vector<uint32_t> ElasticBspScheduler::Awaited(double now, double seconds) const {
  const bool some_wait = std::any_of(workers_.begin(), workers_.end(), [&](const Worker& worker) {
    return worker.waits && now - std::max(excused_, worker.waits_since) >= seconds;
  });
  std::vector<uint32_t> awaited;
  for (uint32_t number = 0; some_wait && number < workers_.size(); ++number) {
    const Worker& worker = workers_[number];
    if (IsIn(worker) && !worker.waits && now - Since(worker) >= seconds) {
      awaited.push_back(number);
    }
  }
  return awaited;
}

std::vector<ElasticBspScheduler::Grant> ElasticBspScheduler::Waiting() const {
  std::vector<Grant> grants;
  for (uint32_t number = 0; number < workers_.size(); ++number) {
    if (workers_[number].waits) {
      grants.push_back({number, workers_[number].granted});
    }
  }
  return grants;
}

void ElasticBspScheduler::Proceed(double now, Orders* orders) {
  if (rules_.model != Model::kElasticBsp) {
    GrantLead(now, orders);
    return;
  }
  if (waiting_ == in_ && waiting_ > 0) {
    ++counters_.barriers;
    counters_.predicted_waits += predicted_wait_;
    orders->barrier = true;
    BeginSuperstep(now, orders);
  }
}

void ElasticBspScheduler::BeginSuperstep(double now, Orders* orders) {
  std::vector<uint32_t> members;
  double longest = 0;
  for (uint32_t number = 0; number < workers_.size(); ++number) {
    Worker& worker = workers_[number];
    if (IsIn(worker)) {
      longest = std::max(longest, worker.waits ? now - worker.waits_since : 0.0);
      StopWaiting(&worker, now);
      worker.latest = now;
      worker.first = static_cast<int64_t>(worker.taken);
      members.push_back(number);
    }
  }
  counters_.longest_waits += longest;
  ++superstep_;
  superstep_began_ = now;
  is_timed_ = true;
  Plan(now, members);
  for (const uint32_t number : members) {
    orders->grants.push_back({number, workers_[number].granted});
  }
}

void ElasticBspScheduler::BeginToWait(Worker* worker, double now) {
  if (worker->waits) {
    return;
  }
  worker->waits = true;
  worker->waits_since = now;
  ++waiting_;
}

void ElasticBspScheduler::StopWaiting(Worker* worker, double now) {
  if (worker->waits) {
    worker->waits = false;
    --waiting_;
    counters_.waiting += now - worker->waits_since;
  }
}

void ElasticBspScheduler::Plan(double now, const std::vector<uint32_t>& members) {
  const auto begin = std::chrono::steady_clock::now();
  const bool known = std::all_of(members.begin(), members.end(),
                                 [this](uint32_t number) { return workers_[number].measured; });
  std::vector<double> values;
  values.reserve(known ? members.size() * rules_.lookahead : 0);
  predicted_wait_ = 0;
  for (const uint32_t number : members) {
    Worker& worker = workers_[number];
    worker.interval = known ? worker.expected() : 0;
    worker.granted = worker.taken + 1;
    for (uint32_t i = 1; known && i <= rules_.lookahead; ++i) {
      values.push_back(now + i * worker.interval);
    }
  }
  const EndTimes ends{values.data(), members.size(), rules_.lookahead};
  if (known && CheckEndTimes(ends).ok()) {
    const Barrier barrier = ZipLine(ends);
    predicted_wait_ = barrier.waiting_time;
    for (size_t i = 0; i < members.size(); ++i) {
      workers_[members[i]].granted = workers_[members[i]].taken + barrier.iterations[i];
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  counters_.planning += took.count();
}

}  // namespace trepak
