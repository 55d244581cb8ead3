#include "tensor/hqq.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "tensor/block_bytes.h"
#include "tensor/format.h"
#include "tensor/tensor_view.h"

namespace klotski {

namespace {

float hqq_number(const std::byte* row, int64_t wide_at, uint32_t code) {
  const float step = bf16_to_float(static_cast<uint16_t>(two_bytes_at(row, wide_at)));
  const float least = bf16_to_float(static_cast<uint16_t>(two_bytes_at(row, wide_at + 2)));
  return least + step * static_cast<float>(code);
}

template <int bits, int64_t group>
void expand_hqq_row(const TensorView& matrix, int64_t row, std::byte* out) {
  const HqqRow form{bits, group, matrix.columns_of_row()};
  const std::byte* data = matrix.data + row * matrix.stride();
  const std::byte* block =
      data + form.header_bytes() + matrix.first_column / kHqqBlock * form.block_bytes();
  auto* numbers = reinterpret_cast<float*>(out);
  constexpr int64_t kSharing = std::min(group, kHqqBlock);  // columns of a block that share a scale
  std::array<uint8_t, kHqqBlock> codes;
  for (int64_t begin = 0; begin < matrix.columns(); begin += kSharing) {
    const int64_t column = matrix.first_column + begin;
    if (column % kHqqBlock == 0) {
      unpack_hqq_codes(block, bits, codes.data());
      block += form.block_bytes();
    }
    const HqqGroup of = hqq_group(form, data, column / group);
    const uint8_t* run = codes.data() + column % kHqqBlock;
    const int64_t count = std::min(kSharing, matrix.columns() - begin);
    for (int64_t i = 0; i < count; ++i) {
      numbers[begin + i] = of.scale * (static_cast<float>(run[i]) - of.zero);
    }
  }
}

template <int bits, int64_t group>
bool pack_hqq_row(const std::byte* numbers, int64_t columns, std::byte* row) {
  return quantize_hqq_row({bits, group, columns}, reinterpret_cast<const float*>(numbers), row);
}

template <int bits, int64_t group>
int64_t hqq_header_bytes(int64_t columns) {
  return HqqRow{bits, group, columns}.header_bytes();
}

template <int bits, int64_t group>
WeightFormat hqq_format(std::string_view name, std::string_view suffix) {
  return {.name = name,
          .values = DType::F32,
          .file_name = {.drop = "", .add = suffix},
          .file_type = DType::U8,
          .in_any_unit = true,
          .block_columns = kHqqBlock,
          .block_bytes = kHqqBlock / 8 * bits,
          .pads_last_block = true,
          .most_columns = kMostHqqColumns,
          .header_bytes = hqq_header_bytes<bits, group>,
          .alignment = kHqqAlignment,
          .sides = {},
          .lossy = true,
          // Any eight bytes are step and least of scales (2^-23 to 2^-19, 2^-15 to 2^-11), and of
          // zero points (2^-9 to 2^-5, 1/2 to 8).
          .noise = {0x01FF01FF01FF01FFu, 0x3E003A0038003400u},
          .expand = expand_hqq_row<bits, group>,
          .pack = pack_hqq_row<bits, group>};
}

}  // namespace

std::span<const WeightFormat> hqq_formats() {
  static const std::array kFormats = {
      hqq_format<4, 32>("HQQ4_32", ".hqq4_32"),    hqq_format<4, 64>("HQQ4_64", ".hqq4_64"),
      hqq_format<4, 128>("HQQ4_128", ".hqq4_128"), hqq_format<3, 32>("HQQ3_32", ".hqq3_32"),
      hqq_format<3, 64>("HQQ3_64", ".hqq3_64"),    hqq_format<3, 128>("HQQ3_128", ".hqq3_128"),
  };
  return kFormats;
}

DType hqq_type(int bits, int64_t group) {
  const bool known = (bits == 4 || bits == 3) && (group == 32 || group == 64 || group == 128);
  if (!known) fail(ErrorKind::internal, "no HQQ format has {} bits and groups of {}", bits, group);
  const int first = static_cast<int>(bits == 4 ? DType::HQQ4_32 : DType::HQQ3_32);
  return static_cast<DType>(first + (group == 32 ? 0 : group == 64 ? 1 : 2));
}

int64_t HqqRow::header_bytes() const {
  constexpr auto kAlignment = static_cast<int64_t>(kHqqAlignment);
  return (zeros_at() + groups() + kAlignment - 1) / kAlignment * kAlignment;
}

HqqGroup hqq_group(const HqqRow& form, const std::byte* row, int64_t group) {
  const int64_t wide_at = group / kHqqWideGroup * 8;
  return {hqq_number(row, wide_at, byte_at(row, form.scales_at() + group)),
          hqq_number(row, wide_at + 4, byte_at(row, form.zeros_at() + group))};
}

void pack_hqq_codes(const uint8_t* codes, int bits, std::byte* block) {
  if (bits == 4) {
    for (int i = 0; i < 32; ++i) {
      block[i] = static_cast<std::byte>(codes[i] | codes[32 + i] << 4);
    }
    return;
  }
  for (int i = 0; i < 16; ++i) {
    unsigned lower = 0;
    for (int part = 0; part < 4; ++part) lower |= (codes[16 * part + i] & 3u) << (2 * part);
    block[i] = static_cast<std::byte>(lower);
  }
  for (int i = 0; i < 8; ++i) {
    unsigned third = 0;
    for (int bit = 0; bit < 8; ++bit) third |= (codes[8 * i + bit] >> 2 & 1u) << bit;
    block[16 + i] = static_cast<std::byte>(third);
  }
}

void unpack_hqq_codes(const std::byte* block, int bits, uint8_t* codes) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(block);
  if (bits == 4) {
    for (int i = 0; i < 32; ++i) codes[i] = bytes[i] & 15;
    for (int i = 0; i < 32; ++i) codes[32 + i] = static_cast<uint8_t>(bytes[i] >> 4);
    return;
  }
  for (int column = 0; column < 64; ++column) {
    const int lower = bytes[column % 16] >> (2 * (column / 16)) & 3;
    const int third = bytes[16 + column / 8] >> (column % 8) & 1;
    codes[column] = static_cast<uint8_t>(lower | third << 2);
  }
}

}  // namespace klotski
