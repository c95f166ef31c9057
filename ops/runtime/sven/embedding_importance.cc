#include "ops/runtime/sven/embedding_importance.h"

#include <algorithm>
#include <limits>
#include <string>

namespace trepak {
namespace {

using Features = std::vector<const EmbeddingRouting::Feature*>;

// How many different rows a table's features have.
size_t RowsOf(const Features& features) {
  size_t rows = 0;
  for (const EmbeddingRouting::Feature* const feature : features) {
    for (size_t id = 0; id < feature->ids(); ++id) {
      rows = std::max(rows, size_t{feature->numbers[id]} + 1);
    }
  }
  return rows;
}

// Sums the weights of the samples in which each row of a table occurs; by the row's number.
std::vector<float> SumSamples(const Features& features, Span<float> labels,
                              const SampleWeights& weights) {
  std::vector<float> sums(RowsOf(features));
  std::vector<size_t> last(sums.size(), std::numeric_limits<size_t>::max());
  for (size_t sample = 0; sample < labels.size; ++sample) {
    const float weight = labels[sample] > 0.5F ? weights.positive : weights.negative;
    for (const EmbeddingRouting::Feature* const feature : features) {
      const size_t each = feature->samples() / labels.size;
      const auto begin = static_cast<size_t>(feature->splits[sample * each]);
      const auto end = static_cast<size_t>(feature->splits[(sample + 1) * each]);
      for (size_t id = begin; id < end; ++id) {
        const uint32_t row = feature->numbers[id];
        if (last[row] != sample) {
          last[row] = sample;
          sums[row] += weight;
        }
      }
    }
  }
  return sums;
}

// Where the rows of each shard begin among all that are requested; by owner, how many there are.
std::vector<size_t> Begins(const EmbeddingRouting& routing, std::vector<int64_t>* splits) {
  const EmbeddingPlan& plan = routing.plan();
  std::vector<size_t> begins(plan.shards().size());
  size_t next = 0;
  splits->clear();
  for (size_t rank = 0; rank < plan.ranks(); ++rank) {
    const size_t before = next;
    for (const uint32_t shard : plan.shards_of(rank)) {
      begins[shard] = next;
      next += routing.shard_rows()[shard];
    }
    splits->push_back(static_cast<int64_t>(next - before));
  }
  return begins;
}

}  // namespace

Status WeighRows(const EmbeddingRouting& routing, Span<float> labels, const SampleWeights& weights,
                 std::vector<float>* importance, std::vector<int64_t>* splits) {
  const EmbeddingPlan& plan = routing.plan();
  std::vector<Features> features(plan.tables().size());
  for (const EmbeddingRouting::Feature& feature : routing.features()) {
    if (labels.size == 0 ? feature.samples() > 0 : feature.samples() % labels.size != 0) {
      return InvalidArgumentError("feature '" + feature.name + "' has " +
                                  std::to_string(feature.samples()) + " samples, to which " +
                                  std::to_string(labels.size) + " labels can't belong");
    }
    features[feature.table].push_back(&feature);
  }
  const std::vector<size_t> begins = Begins(routing, splits);
  size_t requested = 0;
  for (const size_t rows : routing.shard_rows()) {
    requested += rows;
  }
  importance->assign(requested, 0);
  // Places of numbers name the shards: those of a shard stand together.
  std::vector<std::pair<int64_t, size_t>> shards;
  for (size_t shard = 0; shard < begins.size(); ++shard) {
    if (routing.shard_rows()[shard] > 0) {
      shards.emplace_back(routing.shard_values()[shard], shard);
    }
  }
  std::sort(shards.begin(), shards.end());
  for (size_t table = 0; table < features.size(); ++table) {
    const std::vector<float> sums = SumSamples(features[table], labels, weights);
    for (uint32_t row = 0; row < sums.size(); ++row) {
      for (size_t piece = 0; piece < routing.pieces(table); ++piece) {
        const int64_t place = routing.places(table, row)[piece];
        const auto behind =
            std::upper_bound(shards.begin(), shards.end(),
                             std::make_pair(place, std::numeric_limits<size_t>::max()));
        const auto& [begin, shard] = behind[-1];
        const int64_t in_shard = (place - begin) / plan.shards()[shard].columns;
        (*importance)[begins[shard] + static_cast<size_t>(in_shard)] = sums[row];
      }
    }
  }
  return OkStatus();
}

}  // namespace trepak
