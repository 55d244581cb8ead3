#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "synth/random_model.h"
#include "synth/tensor_fill.h"

namespace klotski {

// Bytes of which a piece of a stored tensor must have a whole number: of an element, or of a row
// where the format is packed.
uint64_t grain_bytes(const ModelTensor& tensor);

// Bytes `offset` and on of a tensor as it is stored. Whole grains. Thread-safe.
void fill_stored(const TensorFill& fill, const ModelTensor& tensor, uint64_t offset,
                 std::span<std::byte> out);

}  // namespace klotski
