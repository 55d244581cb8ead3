#include "tensor/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/bytes.h"
#include "tensor/format.h"

namespace klotski {

bool element_count(const Shape& shape, uint64_t* elements) {
  uint64_t product = 1;
  for (const int64_t dimension : shape) {
    if (dimension < 0) return false;
    if (!multiply_checked(product, static_cast<uint64_t>(dimension), &product)) return false;
  }
  *elements = product;
  return true;
}

bool byte_count(const Shape& shape, DType dtype, uint64_t* bytes) {
  if (is_packed(dtype)) {
    constexpr int64_t kMostColumns = int64_t{1} << 32;  // row_bytes() of this many cannot overflow
    uint64_t rows = 0;
    if (!why_not_packed(format_of(dtype), shape).empty() || shape.back() > kMostColumns) {
      return false;
    }
    return element_count({shape.begin(), shape.end() - 1}, &rows) &&
           multiply_checked(rows, static_cast<uint64_t>(bytes_per_row(dtype, shape.back())), bytes);
  }
  uint64_t bits = 0;
  if (!element_count(shape, &bits)) return false;
  if (!multiply_checked(bits, static_cast<uint64_t>(bits_per_element(dtype)), &bits)) return false;
  if (bits % 8 != 0) return false;
  *bytes = bits / 8;
  return true;
}

std::string format_shape(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace klotski
