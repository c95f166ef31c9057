#include "horovod_ext/runtime/elastic_bsp_scheduler.h"

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
  for (Worker& worker : workers_) {
    StopWaiting(&worker, now);
    worker.active = true;
    worker.out = false;
    worker.has_gone_on = false;
    worker.granted = worker.taken;  // what was granted before the pause is void
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
                                                     double communication) {
  Orders orders;
  Worker& worker = workers_[number];
  Measure(&worker, now, communication);
  ++worker.taken;
  ++counters_.steps;
  worker.latest = now;
  worker.has_gone_on = true;
  if (worker.out) {
    worker.out = false;
    in_ += worker.active ? 1 : 0;
    worker.granted = worker.taken;  // it waits for the next barrier
    orders.back.push_back(number);
  }
  if (worker.taken >= worker.granted) {
    BeginToWait(&worker, now);
  }
  Proceed(now, &orders);
  return orders;
}

void ElasticBspScheduler::Measure(Worker* worker, double now, double communication) {
  // When the first step after a pause began is not known, and the very first one compiles.
  if (worker->out || !worker->has_gone_on) {
    return;
  }
  const double interval = now - worker->latest;
  communication = std::clamp(communication, 0.0, interval);
  worker->computing.Add(rules_.prediction, interval - communication);
  worker->communication.Add(rules_.prediction, communication);
  worker->measured = true;
  if (recorded_.size() < rules_.most_recorded) {
    const auto number = static_cast<uint32_t>(worker - workers_.data());
    recorded_.push_back({number, now, interval - communication, communication});
  }
  if (is_timed_ && worker->interval > 0) {
    const double steps = static_cast<double>(worker->taken + 1 - worker->first);
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

ElasticBspScheduler::Orders ElasticBspScheduler::Tick(double now) {
  Orders orders;
  if (waiting_ == 0) {
    return orders;
  }
  for (uint32_t number = 0; number < workers_.size(); ++number) {
    Worker& worker = workers_[number];
    const double patience =
        std::max(rules_.patience_seconds, rules_.patience_factor * worker.expected());
    // Nobody knows what is long for a worker that was never timed.
    if (IsIn(worker) && !worker.waits && worker.measured && now - worker.latest > patience) {
      worker.out = true;
      --in_;
      ++counters_.taken_out;
      orders.taken_out.push_back(number);
    }
  }
  if (!orders.taken_out.empty()) {
    Proceed(now, &orders);
  }
  return orders;
}

void ElasticBspScheduler::Proceed(double now, Orders* orders) {
  if (rules_.model != Model::kElasticBsp) {
    GrantLead(now, orders);
    return;
  }
  if (waiting_ == in_ && waiting_ > 0) {
    ++counters_.barriers;
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
      worker.first = worker.taken;
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
    counters_.predicted_waits += barrier.waiting_time;
    for (size_t i = 0; i < members.size(); ++i) {
      workers_[members[i]].granted = workers_[members[i]].taken + barrier.iterations[i];
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  counters_.planning += took.count();
}

void ElasticBspScheduler::GrantLead(double now, Orders* orders) {
  uint64_t slowest = kForever;
  for (const Worker& worker : workers_) {
    slowest = IsIn(worker) ? std::min(slowest, worker.taken) : slowest;
  }
  const uint64_t steps = rules_.model == Model::kAsp || slowest == kForever
                             ? kForever
                             : slowest + rules_.staleness + 1;
  for (uint32_t number = 0; number < workers_.size(); ++number) {
    Worker& worker = workers_[number];
    if (worker.active && worker.granted < steps) {
      worker.granted = steps;
      orders->grants.push_back({number, steps});
      if (worker.taken < steps) {
        StopWaiting(&worker, now);
      }
    }
  }
}

}  // namespace trepak
