#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "forward/layer.h"
#include "forward/weights.h"
#include "kv/paged_cache.h"
#include "model/description.h"
#include "model/tensors.h"
#include "weights/tensor_source.h"

namespace klotski {

// A model with all of its weights in memory and one plain loop over its layers, which every
// strategy and every placement must equal bit for bit. For tests.
class ResidentModel {
 public:
  ResidentModel(ModelDescription description, const TensorSource& checkpoint);

  const ModelDescription& description() const { return description_; }

  // One pass over the batch, whose i-th sequence keeps its keys and values in sequences[i]. The
  // cache must have room reserved for every token and be of kv_type(precision), as a pipeline's is;
  // the caller commits. The result has one row for each of batch.logit_rows().
  Buffer forward(const Batch& batch, std::span<KvSequence* const> sequences, PagedKvCache& cache,
                 const Processor& ops, Precision precision) const;

 private:
  void attend(const Arithmetic& with, Rows hidden, LayerId layer, const Batch& batch,
              std::span<KvSequence* const> sequences, PagedKvCache& cache) const;
  void feed_forward(const Arithmetic& with, Rows hidden, Rows normed, LayerId layer) const;

  ModelDescription description_;
  std::vector<std::unique_ptr<std::byte[]>> storage_;
  WeightSet model_weights_;
  std::vector<WeightSet> layer_weights_;
  std::vector<std::vector<ExpertWeights>> experts_;  // [layer][expert]
};

}  // namespace klotski
