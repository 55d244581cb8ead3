#pragma once

#include <cstddef>
#include <cstdint>

namespace klotski {

// A matrix [rows][columns] of elements of some bytes that has to become [columns][rows].
struct Transposition {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t element_bytes = 0;

  uint64_t bytes() const { return static_cast<uint64_t>(rows * columns * element_bytes); }
  bool operator==(const Transposition&) const = default;
};

// Transposes a matrix where it lies. Besides the matrix it takes memory for some rows or columns of
// it, less than a hundred.
void transpose(const Transposition& matrix, std::byte* data);

}  // namespace klotski
