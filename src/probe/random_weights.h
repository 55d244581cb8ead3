#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "forward/weights.h"
#include "model/tensors.h"
#include "probe/ops_arena.h"
#include "weights/tensor_source.h"

namespace klotski {

// The element type that a checkpoint keeps tensors of each role in.
using StoredTypes = std::array<DType, static_cast<size_t>(Role::count_)>;

// Types of an expert's tensors: where layers differ, the type that most of them have. Refuses
// (bad_model) types that no operation reads.
StoredTypes stored_types(const ModelDescription& model, const TensorSource& checkpoint);

uint64_t weight_bytes(std::span<const TensorSpec> specs, const StoredTypes& types);

// Fills memory with finite numbers of no large magnitude (WeightFormat::noise). The size is a
// multiple of eight bytes. The threads of `cpu` make the numbers, which do not depend on the
// processor.
void fill_random(const Processor& cpu, std::span<std::byte> bytes, DType type);

// Several copies of a set of tensors with random content.
class RandomWeights {
 public:
  // Copies are made until they hold `wanted` bytes or the next does not fit in `most`; at least
  // one.
  struct Bytes {
    uint64_t wanted = 0;
    uint64_t most = 0;
  };
  RandomWeights(Tier& tier, const Processor& ops, const std::vector<TensorSpec>& specs,
                const StoredTypes& types, Bytes bytes);

  // The next copy, in turn.
  const WeightSet& next();

  // Arranges all that is only multiplied by, as weights that stay in memory are.
  void arrange(Precision precision);

 private:
  const Processor& ops_;
  std::vector<TensorSpec> specs_;
  OpsArena arena_;
  std::vector<WeightSet> copies_;
  size_t next_ = 0;
};

}  // namespace klotski
