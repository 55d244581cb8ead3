// Blocks against those of another implementation (tests/data/gguf/blocks), and their rows as a
// stored format.

#include "tensor/block_formats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tensor/tensor_view.h"
#include "tensor/testing.h"

namespace klotski {
namespace {

constexpr auto kFirstBlockType = static_cast<int>(DType::Q4_0);
constexpr auto kLastBlockType = static_cast<int>(DType::MXFP4);

struct GoldenBlocks {
  std::vector<std::byte> blocks;
  std::vector<float> numbers;
};

GoldenBlocks golden_blocks(const WeightFormat& format) {
  const std::filesystem::path path = std::filesystem::path(KLOTSKI_TEST_DATA) / "gguf/blocks" /
                                     (std::string(format.name) + ".bin");
  std::ifstream in(path, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(in), {}};
  const auto block = static_cast<size_t>(format.block_bytes);
  const auto columns = static_cast<size_t>(format.block_columns);
  const size_t count = content.size() / (block + 4 * columns);
  EXPECT_TRUE(count > 0 && content.size() == count * (block + 4 * columns)) << path;
  GoldenBlocks golden;
  golden.blocks.resize(count * block);
  golden.numbers.resize(count * columns);
  std::memcpy(golden.blocks.data(), content.data(), golden.blocks.size());
  std::memcpy(golden.numbers.data(), content.data() + golden.blocks.size(),
              4 * golden.numbers.size());
  return golden;
}

class BlockFormat : public ::testing::TestWithParam<int> {
 protected:
  DType dtype() const { return static_cast<DType>(GetParam()); }
  const WeightFormat& format() const { return format_of(dtype()); }
};

// Bit for bit; of a NaN only that it is one, since its bits depend on the order of operands.
TEST_P(BlockFormat, ExpandsAsAnotherImplementationDoes) {
  const GoldenBlocks golden = golden_blocks(format());
  const auto columns = static_cast<int64_t>(golden.numbers.size());
  const TensorView view{.data = golden.blocks.data(), .dtype = dtype(), .shape = {1, columns}};
  const std::vector<float> numbers = testing_formats::expanded(view);
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (std::isnan(golden.numbers[i])) {
      ASSERT_TRUE(std::isnan(numbers[i])) << i;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(numbers[i]), std::bit_cast<uint32_t>(golden.numbers[i]))
          << i << ": " << numbers[i] << " for " << golden.numbers[i];
    }
  }
}

TEST_P(BlockFormat, RowsAndColumnsArePartsOfTheMatrix) {
  const int64_t block = format().block_columns;
  const int64_t columns = 2 * block;
  const std::vector<std::byte> bytes = golden_blocks(format()).blocks;
  const TensorView whole{.data = bytes.data(), .dtype = dtype(), .shape = {3, columns}};
  const std::vector<float> all = testing_formats::expanded(whole);
  const TensorView part = columns_between(rows_between(whole, 1, 3), block, columns - 3);
  const std::vector<float> some = testing_formats::expanded(part);
  ASSERT_EQ(some.size(), static_cast<size_t>(2 * (block - 3)));
  for (int64_t row = 0; row < 2; ++row) {
    EXPECT_EQ(std::memcmp(&some[static_cast<size_t>(row * (block - 3))],
                          &all[static_cast<size_t>((row + 1) * columns + block)],
                          static_cast<size_t>(4 * (block - 3))),
              0);
  }
}

TEST_P(BlockFormat, TensorsOfFilesHaveAnyNumberOfDimensions) {
  const int64_t block = format().block_columns;
  uint64_t bytes = 0;
  ASSERT_TRUE(byte_count({5, 3, 2 * block}, dtype(), &bytes));
  EXPECT_EQ(bytes, static_cast<uint64_t>(5 * 3 * 2 * format().block_bytes));
  ASSERT_TRUE(byte_count({block}, dtype(), &bytes));
  EXPECT_EQ(bytes, static_cast<uint64_t>(format().block_bytes));
  EXPECT_FALSE(byte_count({}, dtype(), &bytes));
  EXPECT_FALSE(byte_count({2, block + 1}, dtype(), &bytes));
  EXPECT_FALSE(byte_count({INT64_MAX, INT64_MAX, block}, dtype(), &bytes));
  const std::vector<StoredPart> parts = stored_parts(dtype(), {3, block});
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].dtype, dtype());
  EXPECT_EQ(parts[0].name.of("a.weight"), "a.weight");
  EXPECT_EQ(parts[0].shape, (Shape{3, block}));
}

TEST_P(BlockFormat, RandomBitsAreNumbersOfNoLargeMagnitude) {
  const NoiseBits noise = format().noise;
  uint64_t state = 1;
  std::vector<uint64_t> words(static_cast<size_t>(format().block_bytes));  // eight blocks
  for (uint64_t& word : words) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    word = ((state ^ state >> 29) & noise.random) | noise.fixed;
  }
  const TensorView view{.data = reinterpret_cast<const std::byte*>(words.data()),
                        .dtype = dtype(),
                        .shape = {1, 8 * format().block_columns}};
  for (const float number : testing_formats::expanded(view)) {
    EXPECT_LE(std::fabs(number), 1024.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, BlockFormat, ::testing::Range(kFirstBlockType, kLastBlockType + 1),
                         [](const auto& type) {
                           return std::string(dtype_name(static_cast<DType>(type.param)));
                         });

TEST(BlockFormats, AreTheFormatsOfTheirTypes) {
  EXPECT_EQ(block_formats().size(), static_cast<size_t>(kLastBlockType - kFirstBlockType + 1));
  EXPECT_EQ(dtype_name(DType::Q4_0), "Q4_0");
  EXPECT_EQ(dtype_name(DType::Q2_K), "Q2_K");
  EXPECT_EQ(dtype_name(DType::IQ4_NL), "IQ4_NL");
  EXPECT_EQ(dtype_name(DType::MXFP4), "MXFP4");
}

}  // namespace
}  // namespace klotski
