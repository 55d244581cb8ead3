#include "tensor/checkpoint_formats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <set>

#include "tensor/half.h"
#include "tensor/tensor_view.h"
#include "tensor/testing.h"

namespace klotski {
namespace {

using enum CheckpointMethod;
using testing_formats::expanded;

constexpr int64_t kGroups[] = {32, 64, 128, kWholeRow};

DType only_type(CheckpointMethod method, int64_t group, size_t which = 0) {
  return checkpoint_types(method, group).at(which);
}

// The tensors of a matrix as files have them, bytes all zero.
struct StoredMatrix {
  DType dtype;
  Shape shape;
  std::vector<StoredPart> parts;
  std::vector<std::vector<std::byte>> bytes;

  StoredMatrix(DType of, Shape matrix)
      : dtype(of), shape(std::move(matrix)), parts(stored_parts(dtype, shape)) {
    for (const StoredPart& part : parts) bytes.emplace_back(part.bytes);
  }
  void set_word(size_t part, int64_t at, uint32_t word) {
    std::memcpy(bytes[part].data() + 4 * at, &word, 4);
  }
  void set_half(size_t part, int64_t at, uint16_t bits) {
    std::memcpy(bytes[part].data() + 2 * at, &bits, 2);
  }
  // Puts four bits where number `number` of word `word` of a part is.
  void set_four_bits(size_t part, int64_t word, int64_t number, uint32_t bits) {
    uint32_t value = 0;
    std::memcpy(&value, bytes[part].data() + 4 * word, 4);
    set_word(part, word, value | bits << (4 * number));
  }
  TensorView view() const {
    TensorView view{.data = bytes[0].data(), .dtype = dtype, .shape = shape};
    for (size_t i = 1; i < bytes.size(); ++i) view.sides[i - 1] = bytes[i].data();
    return view;
  }
};

// Random-looking numbers of four bits by place.
uint32_t bits_at(int64_t i, int64_t j) {
  return static_cast<uint32_t>((i * 2654435761u + j * 40503u + (i * j) % 7) >> 3 & 15u);
}
float scale_by_place(int64_t row, int64_t group) {
  return std::ldexp(1.0f + static_cast<float>((row * 5 + group * 3) % 8) / 8.0f,
                    static_cast<int>((row + group) % 5) - 6);
}

// Every part of a matrix expands to the numbers that the whole has there.
void expect_parts_as_whole(const TensorView& whole) {
  const std::vector<float> all = expanded(whole);
  const int64_t columns = whole.columns();
  const int64_t first = columns > 64 ? 64 : 0;
  const TensorView part =
      columns_between(rows_between(rows_between(whole, 1, whole.rows()), 2, 7), first, columns);
  const std::vector<float> some = expanded(part);
  for (int64_t r = 0; r < part.rows(); ++r) {
    for (int64_t c = 0; c < part.columns(); ++c) {
      ASSERT_EQ(some[static_cast<size_t>(r * part.columns() + c)],
                all[static_cast<size_t>((3 + r) * columns + first + c)]);
    }
  }
}

void expect_numbers(const TensorView& view, const std::function<float(int64_t, int64_t)>& number) {
  const std::vector<float> all = expanded(view);
  for (int64_t r = 0; r < view.rows(); ++r) {
    for (int64_t c = 0; c < view.columns(); ++c) {
      ASSERT_EQ(all[static_cast<size_t>(r * view.columns() + c)], number(r, c))
          << format_of(view.dtype).name << " row " << r << " column " << c;
    }
  }
}

TEST(CheckpointFormats, HaveATypeEach) {
  std::set<std::string_view> names;
  for (const CheckpointFormat& row : checkpoint_formats()) {
    EXPECT_TRUE(names.insert(row.format.name).second) << row.name;
    EXPECT_TRUE(row.format.lossy && row.format.is_stated && row.format.in_any_unit) << row.name;
    EXPECT_FALSE(row.format.is_file_type) << row.name;
    EXPECT_EQ(row.format.values, DType::F32);
  }
  EXPECT_EQ(checkpoint_types(fp8, 128).size(), 2u);
  EXPECT_EQ(checkpoint_types(int4, 64).size(), 2u);
  EXPECT_TRUE(checkpoint_types(gptq, 100).empty());
  EXPECT_EQ(format_of(only_type(awq, 128)).name, "AWQ4_G128");
  EXPECT_EQ(checkpoint_format(only_type(awq, 64))->group, 64);
  EXPECT_EQ(checkpoint_format(DType::Q4_0), nullptr);
}

// The definition: a code is sign, exponent and fraction; 0x7F and 0xFF alone are no numbers.
TEST(CheckpointFormats, EveryCodeOfE4m3IsItsNumber) {
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15;
    const int fraction = code & 7;
    const double magnitude = exponent == 0 ? std::ldexp(fraction / 8.0, -6)
                                           : std::ldexp(1.0 + fraction / 8.0, exponent - 7);
    const float number = e4m3_to_float(static_cast<uint8_t>(code));
    EXPECT_EQ(std::signbit(number), code >= 128) << code;
    if ((code & 127) == 127) {
      EXPECT_TRUE(std::isnan(number)) << code;
    } else {
      EXPECT_EQ(number, static_cast<float>(code >= 128 ? -magnitude : magnitude)) << code;
    }
  }
  EXPECT_EQ(e4m3_to_float(0x7E), 448.0f);
  EXPECT_EQ(e4m3_to_float(0x01), 0.001953125f);
}

TEST(CheckpointFormats, Fp8NumbersAreScaledByBlocksOfRowsAndColumns) {
  for (const size_t which : {0u, 1u}) {
    StoredMatrix matrix(only_type(fp8, 128, which), {130, 200});
    EXPECT_EQ(matrix.parts[0].name.of("x.weight"), "x.weight");
    EXPECT_EQ(matrix.parts[1].name.of("x.weight"), "x.weight_scale_inv");
    EXPECT_EQ(matrix.parts[1].shape, (Shape{2, 2}));
    const float scales[] = {0.5f, 2.0f, 0.125f, 3.0f};
    for (int64_t i = 0; i < 4; ++i) {
      if (matrix.parts[1].dtype == DType::F32) {
        std::memcpy(matrix.bytes[1].data() + 4 * i, &scales[i], 4);
      } else {
        matrix.set_half(1, i, float_to_bf16(scales[i]));
      }
    }
    for (size_t i = 0; i < matrix.bytes[0].size(); ++i) {
      matrix.bytes[0][i] = static_cast<std::byte>(i % 127);
    }
    expect_numbers(matrix.view(), [&](int64_t r, int64_t c) {
      return e4m3_to_float(static_cast<uint8_t>((r * 200 + c) % 127)) *
             scales[r / 128 * 2 + c / 128];
    });
    expect_parts_as_whole(matrix.view());
    matrix.bytes[0][201] = std::byte{0xFF};
    EXPECT_TRUE(std::isnan(expanded(matrix.view())[201]));
  }
}

// By hand: bits 0x76543210 are columns 0 to 7, so that column 1 is 1 - 8, times a scale of 2.
TEST(CheckpointFormats, CompressedTensorsPackColumnsFromTheLowestBitsOn) {
  StoredMatrix matrix(only_type(int4, 32), {2, 32});
  EXPECT_EQ(matrix.parts[0].name.of("x.weight"), "x.weight_packed");
  EXPECT_EQ(matrix.parts[0].shape, (Shape{2, 4}));
  EXPECT_EQ(matrix.parts[1].name.of("x.weight"), "x.weight_scale");
  matrix.set_word(0, 0, 0x76543210u);
  matrix.set_half(1, 0, float_to_bf16(2.0f));
  const std::vector<float> numbers = expanded(matrix.view());
  const std::vector<float> first(numbers.begin(), numbers.begin() + 9);
  EXPECT_EQ(first, (std::vector<float>{-16, -14, -12, -10, -8, -6, -4, -2, -16}));
}

TEST(CheckpointFormats, CompressedTensorsOfEveryGroupAndTypeOfScales) {
  const Shape shape = {19, 260};  // the last word of a row and of eight zero points are not full
  for (const int64_t group : kGroups) {
    for (const CheckpointMethod method : {int4, int4_zero_points}) {
      for (const size_t which : {0u, 1u}) {
        StoredMatrix matrix(only_type(method, group, which), shape);
        const int64_t groups = (shape[1] + group - 1) / group;
        const bool half = matrix.parts[1].dtype == DType::F16;
        EXPECT_EQ(matrix.parts[0].shape, (Shape{19, 33}));
        EXPECT_EQ(matrix.parts[1].shape, (Shape{19, groups}));
        for (int64_t r = 0; r < shape[0]; ++r) {
          for (int64_t c = 0; c < shape[1]; ++c) {
            matrix.set_four_bits(0, r * 33 + c / 8, c % 8, bits_at(r, c));
          }
          for (int64_t g = 0; g < groups; ++g) {
            const float scale = scale_by_place(r, g);
            matrix.set_half(1, r * groups + g, half ? float_to_f16(scale) : float_to_bf16(scale));
            if (method == int4) continue;
            matrix.set_four_bits(2, r / 8 * groups + g, r % 8, bits_at(r + 1, g));
          }
        }
        if (method == int4_zero_points) {
          EXPECT_EQ(matrix.parts[2].name.of("x.weight"), "x.weight_zero_point");
          EXPECT_EQ(matrix.parts[2].shape, (Shape{3, groups}));
        }
        expect_numbers(matrix.view(), [&](int64_t r, int64_t c) {
          const int64_t g = c / group;
          const float zero = method == int4 ? 8.0f : static_cast<float>(bits_at(r + 1, g));
          return scale_by_place(r, g) * (static_cast<float>(bits_at(r, c)) - zero);
        });
        expect_parts_as_whole(matrix.view());
      }
    }
  }
}

// By hand: column 9 of row 3 has four bits 1 of word 1 of row 3: q = 13. The zero point of row 3
// has bits 12 to 15: z = 6. With a scale of 0.5, 0.5 * (13 - 7), and 0.5 * (13 - 6) in v2.
TEST(CheckpointFormats, GptqWordsHoldColumnsAndItsZerosAreOneLess) {
  for (const CheckpointMethod method : {gptq, gptq_v2}) {
    StoredMatrix matrix(only_type(method, 128), {8, 128});
    EXPECT_EQ(matrix.parts[0].name.of("x.weight"), "x.qweight");
    EXPECT_EQ(matrix.parts[0].shape, (Shape{16, 8}));
    EXPECT_EQ(matrix.parts[1].name.of("x.weight"), "x.scales");
    EXPECT_EQ(matrix.parts[1].shape, (Shape{1, 8}));
    EXPECT_EQ(matrix.parts[2].name.of("x.weight"), "x.qzeros");
    EXPECT_EQ(matrix.parts[2].shape, (Shape{1, 1}));
    matrix.set_word(0, 8 + 3, 0x000000D0u);
    matrix.set_half(1, 3, float_to_f16(0.5f));
    matrix.set_word(2, 0, 0x00006000u);
    EXPECT_EQ(expanded(matrix.view())[3 * 128 + 9], method == gptq ? 3.0f : 3.5f);
    matrix.set_word(2, 0, 0x0000F000u);  // zero points of 16 and 15
    EXPECT_EQ(expanded(matrix.view())[3 * 128 + 9], method == gptq ? -1.5f : -1.0f);
  }
}

// By hand: bits 4 to 7 of a word are row 2, bits 16 to 19 row 1.
TEST(CheckpointFormats, AwqWordsHoldRowsInTheirOwnOrder) {
  StoredMatrix matrix(only_type(awq, 128), {8, 128});
  EXPECT_EQ(matrix.parts[0].shape, (Shape{128, 1}));
  matrix.set_word(0, 5, 0x75316420u);
  matrix.set_word(2, 0, 0x11111111u);
  for (int64_t r = 0; r < 8; ++r) matrix.set_half(1, r, float_to_f16(1.0f));
  for (int64_t r = 0; r < 8; ++r) {
    EXPECT_EQ(expanded(matrix.view())[static_cast<size_t>(r * 128 + 5)],
              static_cast<float>(r) - 1.0f);
  }
}

TEST(CheckpointFormats, TransposedMatricesOfEveryGroup) {
  const Shape shape = {24, 256};
  constexpr int64_t kAwqOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};  // row of each four bits of a word
  for (const int64_t group : kGroups) {
    for (const CheckpointMethod method : {gptq, gptq_v2, awq}) {
      StoredMatrix matrix(only_type(method, group), shape);
      const int64_t groups = (shape[1] + group - 1) / group;
      const auto number_of_row = [&](int64_t r) {
        if (method != awq) return r % 8;
        return static_cast<int64_t>(std::find(kAwqOrder, kAwqOrder + 8, r % 8) - kAwqOrder);
      };
      for (int64_t r = 0; r < shape[0]; ++r) {
        for (int64_t c = 0; c < shape[1]; ++c) {
          if (method == awq) {
            matrix.set_four_bits(0, c * 3 + r / 8, number_of_row(r), bits_at(r, c));
          } else {
            matrix.set_four_bits(0, c / 8 * 24 + r, c % 8, bits_at(r, c));
          }
        }
        for (int64_t g = 0; g < groups; ++g) {
          matrix.set_half(1, g * 24 + r, float_to_f16(scale_by_place(r, g)));
          matrix.set_four_bits(2, g * 3 + r / 8, number_of_row(r), bits_at(r + 1, g));
        }
      }
      expect_numbers(matrix.view(), [&](int64_t r, int64_t c) {
        const int64_t g = c / group;
        const uint32_t zero = bits_at(r + 1, g) + (method == gptq ? 1 : 0);
        return scale_by_place(r, g) *
               (static_cast<float>(bits_at(r, c)) - static_cast<float>(zero));
      });
      expect_parts_as_whole(matrix.view());
      EXPECT_FALSE(format_of(matrix.dtype).can_be_cut());
      EXPECT_THROW(planes_of(matrix.view()), Error);
    }
  }
}

TEST(CheckpointFormats, MxNumbersLieInPairsWithTheirExponentsApart) {
  StoredMatrix matrix(only_type(mxfp4, 32), {2, 64});
  EXPECT_EQ(matrix.parts[0].name.of("x"), "x_blocks");
  EXPECT_EQ(matrix.parts[0].shape, (Shape{2, 2, 16}));
  EXPECT_EQ(matrix.parts[1].name.of("x"), "x_scales");
  EXPECT_EQ(matrix.parts[1].shape, (Shape{2, 2}));
  const float fp4[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  const int exponents[] = {127, 0, 254, 120};
  for (size_t i = 0; i < 4; ++i) matrix.bytes[1][i] = static_cast<std::byte>(exponents[i]);
  for (int64_t i = 0; i < 64; ++i) {
    matrix.bytes[0][static_cast<size_t>(i)] =
        static_cast<std::byte>(i % 16 | (i * 7 + 3) % 16 << 4);
  }
  expect_numbers(matrix.view(), [&](int64_t r, int64_t c) {
    const int64_t byte = r * 32 + c / 2;
    const int64_t code = c % 2 == 0 ? byte % 16 : (byte * 7 + 3) % 16;
    return static_cast<float>(
        std::ldexp(static_cast<double>(fp4[code]), exponents[r * 2 + c / 32] - 127));
  });
  EXPECT_EQ(expanded(columns_between(matrix.view(), 32, 64))[1], expanded(matrix.view())[33]);
  matrix.bytes[1][1] = std::byte{255};
  EXPECT_TRUE(std::isnan(expanded(matrix.view())[33]));
  EXPECT_FALSE(std::isnan(expanded(matrix.view())[31]));
}

TEST(CheckpointFormats, MxNumbersAndExponentsJoinIntoBlocks) {
  StoredMatrix matrix(only_type(mxfp4, 32), {5, 96});
  for (size_t i = 0; i < matrix.bytes[0].size(); ++i) {
    matrix.bytes[0][i] = static_cast<std::byte>(i * 37 + 11);
  }
  for (size_t i = 0; i < matrix.bytes[1].size(); ++i) {
    matrix.bytes[1][i] = static_cast<std::byte>(i * 17);
  }
  const WeightFormat& format = format_of(matrix.dtype);
  std::vector<std::byte> joined = matrix.bytes[0];
  joined.insert(joined.end(), matrix.bytes[1].begin(), matrix.bytes[1].end());
  format.join(joined.data(), 15);
  const TensorView blocks{.data = joined.data(), .dtype = format.becomes, .shape = {5, 96}};
  EXPECT_EQ(expanded(blocks), expanded(matrix.view()));
}

// Rows of a matrix in which others come before, as gpt-oss has up behind gate: numbers of their
// own, and sides of all rows.
TEST(CheckpointFormats, LaterRowsFindTheirSides) {
  StoredMatrix matrix(only_type(mxfp4, 32), {6, 32});
  for (size_t r = 0; r < 6; ++r) {
    matrix.bytes[1][r] = static_cast<std::byte>(127 + r);
    matrix.bytes[0][r * 16] = std::byte{0x02};
  }
  TensorView later = matrix.view();
  later.shape = {3, 32};
  later.data += 3 * 16;
  later.first_row = 3;
  const auto first_numbers = [](const TensorView& view) {
    const std::vector<float> all = expanded(view);
    std::vector<float> first;
    for (size_t i = 0; i < all.size(); i += 32) first.push_back(all[i]);
    return first;
  };
  EXPECT_EQ(first_numbers(later), (std::vector<float>{8, 16, 32}));
  EXPECT_EQ(first_numbers(rows_between(later, 1, 3)), (std::vector<float>{16, 32}));
  EXPECT_EQ(planes_of(later)[1].data, matrix.view().sides[0] + 3);
  EXPECT_EQ(planes_of(later)[1].rows, 3u);
}

TEST(CheckpointFormats, ShapesThatTheyCannotHaveAreExplained) {
  EXPECT_EQ(why_not_packed(format_of(only_type(gptq, 128)), {12, 128}),
            "rows: expected a multiple of 8, found 12");
  EXPECT_EQ(why_not_packed(format_of(only_type(gptq, 128)), {16, 100}),
            "columns: expected a multiple of 8, found 100");
  EXPECT_EQ(why_not_packed(format_of(only_type(mxfp4, 32)), {16, 48}),
            "columns: expected a multiple of 32, found 48");
  for (const CheckpointFormat& row : checkpoint_formats()) {
    for (const DType dtype : checkpoint_types(row.method, row.group)) {
      EXPECT_TRUE(stored_parts(dtype, {INT64_MAX - 7, 128}).empty()) << row.name;
      EXPECT_TRUE(stored_parts(dtype, {8, INT64_MAX - 127}).empty()) << row.name;
      const std::vector<StoredPart> parts = stored_parts(dtype, {256, 512});
      ASSERT_FALSE(parts.empty()) << row.name;
      uint64_t bytes = 0;
      ASSERT_TRUE(byte_count({256, 512}, dtype, &bytes));
      EXPECT_EQ(parts[0].bytes, bytes) << row.name;
    }
  }
}

}  // namespace
}  // namespace klotski
