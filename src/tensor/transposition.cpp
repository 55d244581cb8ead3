#include "tensor/transposition.h"

#include <cstring>
#include <vector>

namespace klotski {

namespace {

constexpr int64_t kBlockBytes = 8192;  // elements that are moved together: two fit a core's cache

// The largest divisor of a number that is not above a bound.
int64_t divisor_at_most(int64_t number, int64_t bound) {
  for (int64_t divisor = bound; divisor > 1; --divisor) {
    if (number % divisor == 0) return divisor;
  }
  return 1;
}

// Rows of the largest square of elements that fills a block.
int64_t block_side(int64_t element_bytes) {
  int64_t side = 1;
  while ((side + 1) * (side + 1) * element_bytes <= kBlockBytes) ++side;
  return side;
}

// Transposes [rows][columns] blocks of some bytes by following the cycles of the permutation.
void transpose_blocks(std::byte* data, int64_t rows, int64_t columns, int64_t bytes) {
  if (rows == 1 || columns == 1) return;
  const auto size = static_cast<size_t>(bytes);
  const auto at = [&](int64_t block) { return data + block * bytes; };
  std::vector<bool> moved(static_cast<size_t>(rows * columns), false);
  std::vector<std::byte> first(size);
  for (int64_t begin = 0; begin < rows * columns; ++begin) {
    if (moved[static_cast<size_t>(begin)]) continue;
    std::memcpy(first.data(), at(begin), size);
    int64_t hole = begin;
    for (;;) {
      moved[static_cast<size_t>(hole)] = true;
      const int64_t source = hole % rows * columns + hole / rows;
      if (source == begin) break;
      std::memcpy(at(hole), at(source), size);
      hole = source;
    }
    std::memcpy(at(hole), first.data(), size);
  }
}

// A matrix as blocks of block_rows x block_columns elements.
class Blocks {
 public:
  Blocks(const Transposition& matrix, std::byte* data)
      : matrix_(matrix),
        data_(data),
        block_rows_(divisor_at_most(matrix.rows, block_side(matrix.element_bytes))),
        block_columns_(divisor_at_most(matrix.columns, block_side(matrix.element_bytes))) {}

  template <typename Element>
  void transpose() {
    if (block_rows_ * block_columns_ > 1) gather<Element>();
    transpose_blocks(data_, matrix_.rows / block_rows_, matrix_.columns / block_columns_,
                     block_rows_ * block_columns_ * matrix_.element_bytes);
    if (block_rows_ * block_columns_ > 1) spread<Element>();
  }

 private:
  // Each block_rows_ rows become blocks one after the other, each block transposed.
  template <typename Element>
  void gather() {
    std::vector<std::byte> rows(bytes(block_rows_ * matrix_.columns));
    for (int64_t row = 0; row < matrix_.rows; row += block_rows_) {
      std::byte* here = data_ + bytes(row * matrix_.columns);
      std::memcpy(rows.data(), here, rows.size());
      for (int64_t column = 0; column < matrix_.columns; column += block_columns_) {
        std::byte* block = here + bytes(column * block_rows_);
        // Rows are read one after the other: the block stays in the cache, rows far apart may not.
        for (int64_t r = 0; r < block_rows_; ++r) {
          const int64_t first = r * matrix_.columns + column;
          for (int64_t c = 0; c < block_columns_; ++c) {
            copy<Element>(block, c * block_rows_ + r, rows.data(), first + c);
          }
        }
      }
    }
  }

  // Blocks of each block_columns_ columns become rows of the transposed matrix.
  template <typename Element>
  void spread() {
    std::vector<std::byte> blocks(bytes(block_columns_ * matrix_.rows));
    const size_t piece = bytes(block_rows_);
    for (int64_t column = 0; column < matrix_.columns; column += block_columns_) {
      std::byte* here = data_ + bytes(column * matrix_.rows);
      std::memcpy(blocks.data(), here, blocks.size());
      for (int64_t row = 0; row < matrix_.rows; row += block_rows_) {
        const std::byte* block = blocks.data() + bytes(row * block_columns_);
        for (int64_t c = 0; c < block_columns_; ++c) {
          std::memcpy(here + bytes(c * matrix_.rows + row), block + bytes(c * block_rows_), piece);
        }
      }
    }
  }

  size_t bytes(int64_t elements) const {
    return static_cast<size_t>(elements * matrix_.element_bytes);
  }
  // Copies an element; Element has its size, or is a byte where no type has.
  template <typename Element>
  void copy(std::byte* to, int64_t to_index, const std::byte* from, int64_t from_index) const {
    if constexpr (sizeof(Element) == 1) {
      std::memcpy(to + bytes(to_index), from + bytes(from_index), bytes(1));
    } else {
      constexpr auto kSize = static_cast<int64_t>(sizeof(Element));
      std::memcpy(to + to_index * kSize, from + from_index * kSize, sizeof(Element));
    }
  }

  const Transposition& matrix_;
  std::byte* data_;
  int64_t block_rows_;
  int64_t block_columns_;
};

}  // namespace

void transpose(const Transposition& matrix, std::byte* data) {
  if (matrix.rows <= 1 || matrix.columns <= 1) return;
  Blocks blocks(matrix, data);
  if (matrix.element_bytes == sizeof(uint16_t)) return blocks.transpose<uint16_t>();
  if (matrix.element_bytes == sizeof(uint32_t)) return blocks.transpose<uint32_t>();
  blocks.transpose<std::byte>();
}

}  // namespace klotski
