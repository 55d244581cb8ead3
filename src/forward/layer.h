#pragma once

// The arithmetic of a layer as free functions over a batch of sequences. The rows of a batch are the
// tokens of its sequences one after the other, without padding.

#include <span>
#include <vector>

#include "forward/weights.h"
#include "kernels/ops.h"
#include "kv/paged_cache.h"
#include "model/description.h"

namespace klotski {

enum class LogitsOf { none, last_token, every_token };

// Consecutive tokens of one sequence inside a batch.
struct BatchSequence {
  KvSequence* kv = nullptr;    // holds the positions before these
  int64_t first_row = 0;
  int64_t tokens = 0;
  LogitsOf logits = LogitsOf::last_token;
};

struct Batch {
  std::vector<TokenId> tokens;        // one a row
  std::vector<int32_t> positions;     // one a row
  std::vector<BatchSequence> sequences;

  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
  // Appends a sequence's next tokens; its positions go on from what `kv` has committed.
  void append(KvSequence& kv, std::span<const TokenId> next, LogitsOf logits);
  // Rows whose logits are wanted, ascending.
  std::vector<int32_t> logit_rows() const;
};

// Rows that own their floats.
class Buffer {
 public:
  Buffer(int64_t count, int64_t width)
      : count_(count), width_(width), data_(static_cast<size_t>(count * width)) {}
  Rows rows() { return {data_.data(), count_, width_}; }
  std::span<float> floats() { return data_; }

 private:
  int64_t count_;
  int64_t width_;
  std::vector<float> data_;
};

// The experts each row goes to, best first.
struct Routing {
  int64_t slots = 1;              // experts a row
  std::vector<ExpertId> experts;  // [rows][slots]
  std::vector<float> weights;     // [rows][slots]
};

// The arithmetic of one model with one set of kernels.
struct Forward {
  const ModelDescription& model;
  const Ops& ops;

  void embed(Rows hidden, const WeightSet& weights, std::span<const TokenId> tokens) const;

  // hidden += attention(norm(hidden)); the batch's keys and values are written to the cache.
  void attention(Rows hidden, const WeightSet& weights, LayerId layer, const Batch& batch,
                 PagedKvCache& cache) const;

  // normed = norm(hidden), and where its rows go.
  Routing route(Rows normed, ConstRows hidden, const WeightSet& weights, LayerId layer) const;

  // out = expert(in) for the rows that chose the expert.
  void run_expert(Rows out, ConstRows in, const ExpertWeights& expert, LayerId layer) const;

  // hidden += the shared expert of the normed rows, if the layer has one.
  void add_shared_expert(Rows hidden, ConstRows normed, const WeightSet& weights,
                         LayerId layer) const;

  // Logits of the given rows.
  void logits(Rows out, ConstRows hidden, const WeightSet& weights,
              std::span<const int32_t> rows) const;
};

}  // namespace klotski
