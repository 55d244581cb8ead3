#pragma once

// The arithmetic of a model, step by step, as free functions. They read the description and the
// weights they are given; where keys, values and weights are kept is not their business.

#include <span>
#include <vector>

#include "forward/batch.h"
#include "forward/weights.h"
#include "kernels/ops.h"
#include "model/description.h"

namespace klotski {

// What is computed with: one model, one set of kernels.
struct Arithmetic {
  const ModelDescription& model;
  const Ops& ops;
};

// Queries, keys and values of a batch, rotated to their positions.
struct AttentionInputs {
  Buffer queries;  // [rows][query_heads * head_dim]
  Buffer keys;     // [rows][kv_heads * head_dim]
  Buffer values;   // [rows][kv_heads * head_dim]
};

// The experts each row goes to, best first.
struct Routing {
  int64_t slots = 1;              // experts a row
  std::vector<ExpertId> experts;  // [rows][slots]
  std::vector<float> weights;     // [rows][slots]
};

void embed(const Arithmetic& with, Rows hidden, const WeightSet& model_weights,
           std::span<const TokenId> tokens);

AttentionInputs pre_attention(const Arithmetic& with, ConstRows hidden, const WeightSet& weights,
                              LayerId layer, const Batch& batch);

// Keys and values of one sequence: `past` positions computed before and those of the rows at hand.
struct CachedPositions {
  KvPages pages;
  int64_t past = 0;
};

void attention(const Arithmetic& with, Rows output, ConstRows queries, const WeightSet& weights,
               LayerId layer, const CachedPositions& cached);

// hidden += output projection of what attention gave.
void post_attention(const Arithmetic& with, Rows hidden, ConstRows attended,
                    const WeightSet& weights);

// normed = norm(hidden), and where its rows go.
Routing route(const Arithmetic& with, Rows normed, ConstRows hidden, const WeightSet& weights,
              LayerId layer);

// out = expert(in) for the rows that chose the expert.
void run_expert(const Arithmetic& with, Rows out, ConstRows in, const ExpertWeights& expert,
                LayerId layer);

// hidden += the shared expert of the normed rows, if the layer has one.
void add_shared_expert(const Arithmetic& with, Rows hidden, ConstRows normed,
                       const WeightSet& weights, LayerId layer);

// Logits of the given rows.
void logits(const Arithmetic& with, Rows out, ConstRows hidden, const WeightSet& model_weights,
            std::span<const int32_t> rows);

}  // namespace klotski
