#include "ops/runtime/sven/embedding_combine.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace trepak {
namespace {

// Vector instructions come of these loops, which most of the time is spent in.
void Assign(size_t count, float factor, const float* __restrict__ from, float* __restrict__ to) {
  for (size_t i = 0; i < count; ++i) {
    to[i] = factor * from[i];
  }
}

void Add(size_t count, float factor, const float* __restrict__ from, float* __restrict__ to) {
  for (size_t i = 0; i < count; ++i) {
    to[i] += factor * from[i];
  }
}

void Divide(size_t count, float divisor, float* values) {
  for (size_t i = 0; i < count; ++i) {
    values[i] /= divisor;
  }
}

// What one feature's samples are made of.
class Samples {
 public:
  Samples(const EmbeddingRouting& routing, size_t feature, const Reduction& reduction)
      : feature_(routing.features()[feature]),
        reduction_(reduction),
        routing_(routing),
        cuts_(routing.plan().grid(feature_.table).pieces),
        has_weights_(reduction.weights.size > 0 &&
                     (reduction.reduces || reduction.combiner == Combiner::kSum)),
        divides_(reduction.reduces && reduction.combiner != Combiner::kSum) {}

  size_t count() const { return feature_.samples(); }
  size_t begin(size_t sample) const { return static_cast<size_t>(feature_.splits[sample]); }
  size_t end(size_t sample) const { return begin(sample + 1); }
  size_t columns() const { return static_cast<size_t>(cuts_.back()); }
  bool divides() const { return divides_; }

  float weight(size_t id) const { return has_weights_ ? reduction_.weights[id] : 1.0F; }

  float Divisor(size_t sample) const {
    const bool squares = reduction_.combiner == Combiner::kSqrtn;
    float sum = 0;
    for (size_t id = begin(sample); id < end(sample); ++id) {
      sum += squares ? weight(id) * weight(id) : weight(id);
    }
    return squares ? std::sqrt(sum) : sum;
  }

  // Calls `use` with each piece of an id's row: its columns, and its place among what came back.
  template <typename Use>
  void ForPieces(size_t id, const Use& use) const {
    const int64_t* const places = routing_.places(feature_.table, feature_.numbers[id]);
    for (size_t piece = 0; piece + 1 < cuts_.size(); ++piece) {
      const auto column = static_cast<size_t>(cuts_[piece]);
      use(column, static_cast<size_t>(cuts_[piece + 1]) - column,
          static_cast<size_t>(places[piece]));
    }
  }

 private:
  const EmbeddingRouting::Feature& feature_;
  const Reduction& reduction_;
  const EmbeddingRouting& routing_;
  const std::vector<int64_t>& cuts_;
  const bool has_weights_;
  const bool divides_;
};

Status CheckReduction(const EmbeddingRouting::Feature& feature, const Reduction& reduction) {
  const std::string name = "feature '" + feature.name + "'";
  if (reduction.weights.size != 0 && reduction.weights.size != feature.ids()) {
    return InvalidArgumentError(name + " has " + std::to_string(reduction.weights.size) +
                                " weights for " + std::to_string(feature.ids()) + " ids");
  }
  for (size_t sample = 0; !reduction.reduces && sample <= feature.samples(); ++sample) {
    if (feature.splits[sample] != static_cast<int64_t>(sample)) {
      return InvalidArgumentError(name + " is not reduced, so that each sample must have one id");
    }
  }
  return OkStatus();
}

Status CheckReductions(const EmbeddingRouting& routing, const std::vector<Reduction>& reductions) {
  if (reductions.size() != routing.features().size()) {
    return InvalidArgumentError("there are " + std::to_string(reductions.size()) +
                                " combiners for " + std::to_string(routing.features().size()) +
                                " features");
  }
  for (size_t i = 0; i < reductions.size(); ++i) {
    TREPAK_RETURN_IF_ERROR(CheckReduction(routing.features()[i], reductions[i]));
  }
  return OkStatus();
}

void CombineFeature(const Samples& samples, const float* values, float* output) {
  const size_t columns = samples.columns();
  for (size_t sample = 0; sample < samples.count(); ++sample, output += columns) {
    const size_t begin = samples.begin(sample);
    const size_t end = samples.end(sample);
    if (begin == end) {
      std::fill_n(output, columns, 0.0F);
      continue;
    }
    const float divisor = samples.divides() ? samples.Divisor(sample) : 1.0F;
    if (divisor == 0) {
      std::fill_n(output, columns, 0.0F);
      continue;
    }
    samples.ForPieces(begin, [&](size_t column, size_t count, size_t place) {
      Assign(count, samples.weight(begin), values + place, output + column);
    });
    for (size_t id = begin + 1; id < end; ++id) {
      samples.ForPieces(id, [&](size_t column, size_t count, size_t place) {
        Add(count, samples.weight(id), values + place, output + column);
      });
    }
    if (divisor != 1) {
      Divide(columns, divisor, output);
    }
  }
}

void SpreadFeature(const Samples& samples, const float* gradient, float* values) {
  const size_t columns = samples.columns();
  for (size_t sample = 0; sample < samples.count(); ++sample, gradient += columns) {
    const float divisor = samples.divides() ? samples.Divisor(sample) : 1.0F;
    if (divisor == 0) {
      continue;
    }
    for (size_t id = samples.begin(sample); id < samples.end(sample); ++id) {
      samples.ForPieces(id, [&](size_t column, size_t count, size_t place) {
        Add(count, samples.weight(id) / divisor, gradient + column, values + place);
      });
    }
  }
}

}  // namespace

Status Combine(const EmbeddingRouting& routing, const std::vector<Reduction>& reductions,
               Span<float> values, const std::vector<float*>& outputs) {
  TREPAK_RETURN_IF_ERROR(CheckReductions(routing, reductions));
  if (values.size != routing.values()) {
    return InvalidArgumentError(std::to_string(values.size) + " numbers of embeddings came back, " +
                                "but " + std::to_string(routing.values()) + " were asked for");
  }
  for (size_t i = 0; i < reductions.size(); ++i) {
    CombineFeature(Samples(routing, i, reductions[i]), values.data, outputs[i]);
  }
  return OkStatus();
}

Status Spread(const EmbeddingRouting& routing, const std::vector<Reduction>& reductions,
              const std::vector<Span<float>>& gradients, float* values) {
  TREPAK_RETURN_IF_ERROR(CheckReductions(routing, reductions));
  for (size_t i = 0; i < reductions.size(); ++i) {
    const Samples samples(routing, i, reductions[i]);
    if (gradients[i].size != samples.count() * samples.columns()) {
      return InvalidArgumentError("the gradient of feature '" + routing.features()[i].name +
                                  "' has " + std::to_string(gradients[i].size) +
                                  " numbers, but must have " + std::to_string(samples.count()) +
                                  " rows of " + std::to_string(samples.columns()));
    }
  }
  std::fill_n(values, routing.values(), 0.0F);
  for (size_t i = 0; i < reductions.size(); ++i) {
    SpreadFeature(Samples(routing, i, reductions[i]), gradients[i].data, values);
  }
  return OkStatus();
}

}  // namespace trepak
