// What the token server knows of one iteration (Fela, section III).

#ifndef TREPAK_OPS_RUNTIME_FELA_FELA_ITERATION_H_
#define TREPAK_OPS_RUNTIME_FELA_FELA_ITERATION_H_

#include <cstdint>
#include <vector>

#include "ops/runtime/fela/fela_bucket.h"
#include "ops/runtime/fela/fela_chunk_name.h"
#include "ops/runtime/fela/fela_generator.h"
#include "ops/runtime/fela/fela_info_mapping.h"
#include "ops/runtime/fela/fela_permits.h"
#include "ops/runtime/fela/fela_plan.h"
#include "ops/runtime/fela/fela_waiting.h"

namespace trepak {

// Its tokens, who has completed which, and who waits for one.
//
// Thread safety: none; its owner sees to it. The plan and the permits must outlive it.
struct FelaIteration {
  // A chunk that a token's training reads.
  struct Input {
    FelaChunkKind kind = FelaChunkKind::kSamples;
    uint32_t token = 0;
    uint32_t holder = 0;  // the worker that has it
    uint32_t samples = 0;
  };
  // Samples of a token that follow each other among those of all workers.
  struct Range {
    uint32_t first = 0;
    uint32_t count = 0;
  };
  struct Assignment {
    uint32_t worker = 0;
    uint32_t token = 0;
    uint32_t stage = 0;
    uint32_t samples = 0;
    bool recomputes = false;  // backward, of another's activations: goes forward first
    std::vector<Input> inputs;
    std::vector<Range> ranges;
    uint64_t iteration = 0;  // the token's age
  };

  FelaIteration(uint64_t number, const FelaPlan& plan, const FelaPermits& permits);

  // Puts tokens that were made into the bucket. Returns the workers in whose sub-buckets they are.
  std::vector<uint32_t> AddAll(const std::vector<uint32_t>& made, uint32_t reporter);

  // What a worker is told of a token that it is given.
  Assignment Assign(uint32_t worker, const FelaToken& token) const;

  bool is_trained() const { return trained == plan.submodels(); }

  const uint64_t number;
  const FelaPlan& plan;
  FelaGenerator generator;
  FelaInfoMapping info;
  FelaBucket bucket;
  FelaWaiting waiting;            // workers that may be given its tokens
  std::vector<uint32_t> samples;  // by worker
  uint32_t trained = 0;           // sub-models

 private:
  void AddInputs(const FelaToken& forward, Assignment* assignment) const;
  // The T-1 tokens that a forward token is made of.
  void AddLeaves(const FelaToken& forward, std::vector<uint32_t>* leaves) const;
  Range RangeOf(uint32_t first_token) const;
};

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_FELA_FELA_ITERATION_H_
