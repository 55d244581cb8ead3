#include "tensor/block_formats.h"

#include <algorithm>
#include <array>

#include "tensor/tensor_view.h"

namespace klotski {

namespace {

using ExpandBlock = void (*)(const std::byte* block, float* out);

template <int64_t columns, int64_t bytes, ExpandBlock expand_block>
void expand_blocks(const TensorView& matrix, int64_t row, std::byte* out) {
  const std::byte* block =
      matrix.data + row * matrix.stride() + matrix.first_column / columns * bytes;
  auto* numbers = reinterpret_cast<float*>(out);
  int64_t left = matrix.columns();
  for (; left >= columns; left -= columns, block += bytes, numbers += columns) {
    expand_block(block, numbers);
  }
  if (left == 0) return;
  std::array<float, columns> last;  // the view ends within a block
  expand_block(block, last.data());
  std::copy_n(last.begin(), left, numbers);
}

// Any two of these bytes are an F16 number of a magnitude from 2^-7 to 2^-5.
constexpr NoiseBits kHalfScales = {0x8787878787878787u, 0x2020202020202020u};
// Any of these bytes is the exponent of a scale from 2^-15 to 1.
constexpr NoiseBits kExponentScales = {0x0F0F0F0F0F0F0F0Fu, 0x7070707070707070u};

template <int64_t columns, int64_t bytes, ExpandBlock expand_block>
WeightFormat block_format(std::string_view name, const NoiseBits& noise = kHalfScales) {
  return {.name = name,
          .values = DType::F32,
          .file_name = {},
          .is_file_type = true,
          .block_columns = columns,
          .block_bytes = bytes,
          .alignment = std::min<uint64_t>(bytes & -bytes, 16),
          .sides = {},
          .lossy = true,
          .noise = noise,
          .expand = expand_blocks<columns, bytes, expand_block>};
}

}  // namespace

std::span<const WeightFormat> block_formats() {
  static const std::array kFormats = {
      block_format<32, 18, expand_q4_0>("Q4_0"),
      block_format<32, 20, expand_q4_1>("Q4_1"),
      block_format<32, 22, expand_q5_0>("Q5_0"),
      block_format<32, 24, expand_q5_1>("Q5_1"),
      block_format<32, 34, expand_q8_0>("Q8_0"),
      block_format<256, 84, expand_q2_k>("Q2_K"),
      block_format<256, 110, expand_q3_k>("Q3_K"),
      block_format<256, 144, expand_q4_k>("Q4_K"),
      block_format<256, 176, expand_q5_k>("Q5_K"),
      block_format<256, 210, expand_q6_k>("Q6_K"),
      block_format<32, 18, expand_iq4_nl>("IQ4_NL"),
      block_format<256, 136, expand_iq4_xs>("IQ4_XS"),
      block_format<32, 17, expand_mxfp4>("MXFP4", kExponentScales),
  };
  return kFormats;
}

}  // namespace klotski
