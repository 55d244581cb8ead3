#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/description.h"
#include "model/unit_source.h"
#include "synth/tensor_fill.h"
#include "tensor/dtype.h"

namespace klotski {

// Makes a random model's weights where they are needed, on all compute threads: the bytes that
// synthesise() writes. Bytes between the tensors of a buffer are left as they are.
class SyntheticSource : public UnitSource {
 public:
  SyntheticSource(ModelDescription model, uint64_t seed, double share, DType dtype);
  SyntheticSource(const SyntheticSource&) = delete;  // fill_ knows where model_ is
  SyntheticSource& operator=(const SyntheticSource&) = delete;

  void read(const WeightUnit& unit, const UnitLayout& layout, std::span<std::byte> buffer,
            const Processor& cpu) override;

 private:
  const ModelDescription model_;
  const DType dtype_;
  const TensorFill fill_;
};

}  // namespace klotski
