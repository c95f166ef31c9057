// Ranks of a job in one process, for tests: their stores, and what they send each other.

#ifndef TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_FAKE_JOB_H_
#define TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_FAKE_JOB_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/runtime/sven/embedding_combine.h"
#include "ops/runtime/sven/embedding_store.h"

namespace trepak {

using Plan = std::shared_ptr<const EmbeddingPlan>;

// Cuts of one table, as a grid: shard (i, j) of rows × columns goes to ranks in turn.
inline void AddGrid(size_t ranks, size_t table, const EmbeddingTable& of, int64_t row_cuts,
                    int64_t column_cuts, std::vector<EmbeddingShard>* shards) {
  for (int64_t i = 0; i < row_cuts; ++i) {
    for (int64_t j = 0; j < column_cuts; ++j) {
      const int64_t first = of.dim * j / column_cuts;
      const int64_t rows = (of.vocabulary - i + row_cuts - 1) / row_cuts;
      shards->push_back({table, shards->size() % ranks, i, row_cuts, rows, first,
                         of.dim * (j + 1) / column_cuts - first});
    }
  }
}

inline Plan MakePlan(size_t ranks, const std::vector<EmbeddingTable>& tables,
                     const std::vector<EmbeddingShard>& shards) {
  Plan plan;
  const Status status = EmbeddingPlan::Make(ranks, tables, shards, &plan);
  EXPECT_TRUE(status.ok()) << status;
  return plan;
}

template <typename Element>
Span<Element> ViewOf(const std::vector<Element>& values) {
  return {values.data(), values.size()};
}

// One feature of one rank in one step.
struct FakeFeature {
  std::string name;
  size_t table = 0;
  std::vector<int64_t> ids;
  std::vector<int64_t> splits;
  std::vector<float> weights = {};  // or none
  Combiner combiner = Combiner::kSum;
  bool reduces = true;
};

// What each rank sends, by rank: one buffer, and how much of it is for each other one.
template <typename Element>
struct Exchanged {
  std::vector<std::vector<Element>> buffers;
  std::vector<std::vector<int64_t>> splits;
};

// Gives each rank what the others have for it, in their order.
template <typename Element>
Exchanged<Element> AllToAll(const Exchanged<Element>& sent) {
  const size_t ranks = sent.buffers.size();
  Exchanged<Element> got;
  got.buffers.resize(ranks);
  got.splits.resize(ranks);
  for (size_t from = 0; from < ranks; ++from) {
    auto next = sent.buffers[from].begin();
    for (size_t to = 0; to < ranks; ++to) {
      const int64_t size = sent.splits[from][to];
      got.buffers[to].insert(got.buffers[to].end(), next, next + size);
      got.splits[to].push_back(size);
      next += size;
    }
  }
  return got;
}

class FakeJob {
 public:
  using Tensors = std::vector<std::vector<float>>;  // by feature

  explicit FakeJob(const Plan& plan, const TierOptions& tiers = {})
      : FakeJob(plan, std::vector<TierOptions>(plan->ranks(), tiers)) {}
  // `tiers`: by rank.
  FakeJob(const Plan& plan, const std::vector<TierOptions>& tiers)
      : plan_(plan), stores_(plan->ranks()) {
    for (size_t rank = 0; rank < plan->ranks(); ++rank) {
      EXPECT_EQ(EmbeddingStore::Make(plan, rank, tiers[rank], &stores_[rank]), OkStatus());
    }
  }

  EmbeddingStore& store(size_t rank) { return *stores_[rank]; }
  const Exchanged<int64_t>& requests() const { return requests_; }
  const EmbeddingRouting& routing(size_t rank) const { return *routings_[rank]; }

  // Sets the weights of a table from [vocabulary, dim] numbers, or reads them.
  void Fill(size_t table, const std::vector<float>& weights) {
    ForShards(table, [&](size_t number, const EmbeddingShard& shard) {
      std::vector<float> rows;
      ForCells(shard, [&](size_t place) { rows.push_back(weights[place]); });
      EXPECT_EQ(store(shard.rank).Write(number, 0, shard.rows, false, rows.data()), OkStatus());
    });
  }
  std::vector<float> Weights(size_t table) {
    const EmbeddingTable& of = plan_->tables()[table];
    std::vector<float> weights(static_cast<size_t>(of.vocabulary * of.dim));
    ForShards(table, [&](size_t number, const EmbeddingShard& shard) {
      std::vector<float> rows(static_cast<size_t>(shard.rows * shard.columns));
      EXPECT_EQ(store(shard.rank).Read(number, 0, shard.rows, false, rows.data()), OkStatus());
      size_t next = 0;
      ForCells(shard, [&](size_t place) { weights[place] = rows[next++]; });
    });
    return weights;
  }

  // The forward pass. `features`: by rank. Returns each rank's outputs.
  std::vector<Tensors> Forward(const std::vector<std::vector<FakeFeature>>& features) {
    features_ = features;
    routings_.assign(plan_->ranks(), nullptr);
    Exchanged<int64_t> sent;
    for (size_t rank = 0; rank < plan_->ranks(); ++rank) {
      std::vector<FeatureIds> ids;
      for (const FakeFeature& one : features[rank]) {
        ids.push_back({one.name, one.table, ViewOf(one.ids), ViewOf(one.splits)});
      }
      sent.buffers.emplace_back();
      const auto allocate = [&](size_t count) {
        sent.buffers.back().resize(count);
        return sent.buffers.back().data();
      };
      EXPECT_EQ(EmbeddingRouting::Make(plan_, ids, allocate, &routings_[rank]), OkStatus());
      sent.splits.push_back(routings_[rank]->request_splits());
    }
    requests_ = AllToAll(sent);
    Exchanged<float> answers;
    for (size_t rank = 0; rank < plan_->ranks(); ++rank) {
      const EmbeddingRequests requests = Parsed(rank);
      answers.buffers.emplace_back(requests.values());
      answers.splits.push_back(requests.value_splits());
      EXPECT_EQ(store(rank).LookUp(requests, answers.buffers.back().data()), OkStatus());
    }
    answers = AllToAll(answers);
    std::vector<Tensors> outputs(plan_->ranks());
    for (size_t rank = 0; rank < plan_->ranks(); ++rank) {
      EXPECT_EQ(answers.splits[rank], routings_[rank]->value_splits());
      std::vector<float*> memory;
      for (const FakeFeature& one : features[rank]) {
        const size_t size = (one.splits.size() - 1) * Columns(one);
        outputs[rank].emplace_back(size, -1.0F);
        memory.push_back(outputs[rank].back().data());
      }
      EXPECT_EQ(Combine(*routings_[rank], Reductions(rank), ViewOf(answers.buffers[rank]), memory),
                OkStatus());
    }
    return outputs;
  }

  // The backward pass of what went forward last. `gradients`: by rank.
  Status Backward(const std::vector<Tensors>& gradients, const EmbeddingStore::Step& step) {
    Exchanged<float> sent;
    for (size_t rank = 0; rank < plan_->ranks(); ++rank) {
      std::vector<Span<float>> views;
      for (const std::vector<float>& gradient : gradients[rank]) {
        views.push_back(ViewOf(gradient));
      }
      sent.buffers.emplace_back(routings_[rank]->values(), -1.0F);
      sent.splits.push_back(routings_[rank]->value_splits());
      EXPECT_EQ(Spread(*routings_[rank], Reductions(rank), views, sent.buffers.back().data()),
                OkStatus());
    }
    const Exchanged<float> got = AllToAll(sent);
    for (size_t rank = 0; rank < plan_->ranks(); ++rank) {
      TREPAK_RETURN_IF_ERROR(store(rank).Update(Parsed(rank), ViewOf(got.buffers[rank]), step));
    }
    return OkStatus();
  }

 private:
  size_t Columns(const FakeFeature& feature) const {
    return static_cast<size_t>(plan_->tables()[feature.table].dim);
  }

  EmbeddingRequests Parsed(size_t rank) {
    EmbeddingRequests requests;
    EXPECT_EQ(store(rank).Parse(ViewOf(requests_.buffers[rank]), ViewOf(requests_.splits[rank]),
                                &requests),
              OkStatus());
    return requests;
  }

  std::vector<Reduction> Reductions(size_t rank) const {
    std::vector<Reduction> reductions;
    for (const FakeFeature& one : features_[rank]) {
      reductions.push_back({one.combiner, one.reduces, ViewOf(one.weights)});
    }
    return reductions;
  }

  template <typename Use>
  void ForShards(size_t table, const Use& use) const {
    for (size_t number = 0; number < plan_->shards().size(); ++number) {
      if (plan_->shards()[number].table == table) {
        use(number, plan_->shards()[number]);
      }
    }
  }

  template <typename Use>
  void ForCells(const EmbeddingShard& shard, const Use& use) const {
    const int64_t dim = plan_->tables()[shard.table].dim;
    for (int64_t row = 0; row < shard.rows; ++row) {
      for (int64_t column = 0; column < shard.columns; ++column) {
        use(static_cast<size_t>((shard.first_row + row * shard.row_stride) * dim +
                                shard.first_column + column));
      }
    }
  }

  const Plan plan_;
  std::vector<std::shared_ptr<EmbeddingStore>> stores_;
  std::vector<std::vector<FakeFeature>> features_;
  std::vector<std::shared_ptr<const EmbeddingRouting>> routings_;
  Exchanged<int64_t> requests_;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_SVEN_EMBEDDING_FAKE_JOB_H_
