#include "tensor/format.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "tensor/compact.h"
#include "tensor/tensor_view.h"
#include "tensor/testing.h"

namespace klotski {
namespace {

TEST(WeightFormat, ElementsOfFilesAreBlocksOfTheirOwn) {
  for (int i = 0; i < kFileDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const WeightFormat& format = format_of(dtype);
    EXPECT_FALSE(is_packed(dtype));
    EXPECT_EQ(format.name, dtype_name(dtype));
    EXPECT_EQ(format.row_bytes(12), bytes_per_row(dtype, 12)) << format.name;
    EXPECT_TRUE(format.can_be_cut());
    const bool multiplied = dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16;
    EXPECT_EQ(format.expand != nullptr, multiplied) << format.name;
  }
}

TEST(WeightFormat, OfNoFormatNothingIsKnown) {
  EXPECT_THROW(format_of(static_cast<DType>(kMostDTypes - 1)), Error);
  WeightFormat unreadable;
  unreadable.name = "unreadable";
  EXPECT_THROW(add_format(unreadable), Error);
}

TEST(WeightFormat, CompactRowsHaveASizeAndTheirNumbersNone) {
  EXPECT_TRUE(is_packed(kCompactType) && has_bf16_values(kCompactType));
  EXPECT_THROW(bits_per_element(kCompactType), Error);
  EXPECT_EQ(bytes_per_row(kCompactType, 100), 32 + 2 * 96);
  uint64_t bytes = 0;
  ASSERT_TRUE(byte_count({3, 5}, kCompactType, &bytes));
  EXPECT_EQ(bytes, 3u * (32 + 96));
  EXPECT_FALSE(byte_count({64}, kCompactType, &bytes));
  EXPECT_FALSE(byte_count({1, 65'537}, kCompactType, &bytes));
  EXPECT_FALSE(byte_count({INT64_MAX, 64}, kCompactType, &bytes));
}

TEST(WeightFormat, PartsOfCompactRowsKeepTheirHeaders) {
  const std::vector<std::byte> bytes(4 * (32 + 4 * 96));
  const TensorView whole = {.data = bytes.data(), .dtype = kCompactType, .shape = {4, 200}};
  const int64_t row = 32 + 4 * 96;
  EXPECT_EQ(whole.stride(), row);
  EXPECT_EQ(whole.columns_of_row(), 200);
  const TensorView some =
      columns_between(rows_between(columns_between(whole, 64, 200), 2, 4), 64, 100);
  EXPECT_EQ(some.data, bytes.data() + 2 * row);
  EXPECT_EQ(some.shape, (Shape{2, 36}));
  EXPECT_EQ(some.stride(), row);
  EXPECT_EQ(some.columns_of_row(), 200);
  EXPECT_EQ(some.first_column, 128);
  EXPECT_THROW(columns_between(whole, 32, 100), Error);
}

TEST(WeightFormat, CompactRowsComeBackFromTheirFormat) {
  const std::vector<uint16_t> numbers = {0x3F80, 0xBF81, 0x3F00, 0x0001};
  const WeightFormat& format = format_of(kCompactType);
  alignas(16) std::array<std::byte, compact_row_bytes(4)> row{};
  ASSERT_TRUE(format.pack(reinterpret_cast<const std::byte*>(numbers.data()), 4, row.data()));
  const TensorView view{.data = row.data(), .dtype = kCompactType, .shape = {1, 4}};
  std::vector<uint16_t> again(4);
  format.expand(view, 0, reinterpret_cast<std::byte*>(again.data()));
  EXPECT_EQ(again, numbers);
}

TEST(WeightFormat, SideTensorsHaveNamesTypesAndShapes) {
  const std::vector<StoredPart> parts = stored_parts(testing_formats::drill_type(), {4, 96});
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].name.of("layer.weight"), "layer.q8");
  EXPECT_EQ(parts[0].dtype, DType::I8);
  EXPECT_EQ(parts[0].shape, (Shape{4, 96}));
  EXPECT_EQ(parts[0].bytes, 4u * 96);
  EXPECT_EQ(parts[1].name.of("layer.weight"), "layer.q8_scales");
  EXPECT_EQ(parts[1].dtype, DType::F16);
  EXPECT_EQ(parts[1].shape, (Shape{4, 3}));
  EXPECT_EQ(parts[1].bytes, 4u * 3 * 2);
  const SideTensor blocks{.name = {}, .dtype = DType::F32, .block_rows = 128, .block_columns = 128};
  EXPECT_EQ(blocks.shape({300, 256}), (Shape{3, 2}));
}

TEST(WeightFormat, ShapesThatCannotBeAreExplained) {
  const WeightFormat& format = format_of(testing_formats::drill_type());
  EXPECT_EQ(why_not_packed(format, {4, 64}), "");
  EXPECT_EQ(why_not_packed(format, {4, 48}), "columns: expected a multiple of 32, found 48");
  EXPECT_EQ(why_not_packed(format, {2, 4, 64}), "expected a matrix, found [2, 4, 64]");
  EXPECT_EQ(why_not_packed(format_of(kCompactType), {1, 65'537}),
            "columns: expected at most 65536, found 65537");
  EXPECT_TRUE(stored_parts(testing_formats::drill_type(), {4, 48}).empty());
  EXPECT_TRUE(stored_parts(testing_formats::drill_type(), {INT64_MAX, 64}).empty());
}

// Rows 2 to 4, columns 0 to 63 of a matrix, moved elsewhere.
TEST(WeightFormat, PlanesOfAPartAreAMatrixAgain) {
  std::vector<float> values(5 * 96);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 37) - 18;
  const testing_formats::DrillMatrix matrix(values, {5, 96});
  const TensorView part = columns_between(rows_between(matrix.view(), 2, 5), 0, 64);
  const std::vector<BytePlane> planes = planes_of(part);
  ASSERT_EQ(planes.size(), 2u);
  EXPECT_EQ(planes[0].bytes(), 3u * 64);
  EXPECT_EQ(planes[1].bytes(), 3u * 3 * 2);
  std::array<std::vector<std::byte>, 2> copies;
  for (size_t i = 0; i < planes.size(); ++i) {
    for (uint64_t row = 0; row < planes[i].rows; ++row) {
      const std::byte* from = planes[i].data + row * planes[i].stride;
      copies[i].insert(copies[i].end(), from, from + planes[i].row_bytes);
    }
  }
  const std::array<const std::byte*, 2> at = {copies[0].data(), copies[1].data()};
  const TensorView copy = with_planes(part, at);
  EXPECT_EQ(testing_formats::expanded(copy), testing_formats::expanded(part));
  EXPECT_EQ(testing_formats::expanded(copy).size(), 3u * 64);
  // A part of a part, from the second block on.
  const TensorView inner = columns_between(matrix.view(), 32, 96);
  EXPECT_EQ(testing_formats::expanded(inner)[1], testing_formats::expanded(matrix.view())[33]);
  EXPECT_THROW(planes_of(inner), Error);
}

}  // namespace
}  // namespace klotski
