// The inner loops on their own: how numbers are read and laid out, and which set is chosen.

#include "kernels/cpu/kernels.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/cpu/multiply.h"
#include "kernels/cpu/testing.h"

namespace klotski {
namespace {

// Multiplies `width` columns, of which the first is 1 and the others 0, by 65536 weight rows that
// begin with every half there is, and returns these.
std::vector<float> every_half(const cpu::Products& products, cpu::WeightType type, int64_t rows,
                              int64_t width) {
  constexpr int64_t kHalves = 65536;
  std::vector<uint16_t> weights(static_cast<size_t>(kHalves * width));
  for (size_t i = 0; i < kHalves; ++i) {
    weights[i * static_cast<size_t>(width)] = static_cast<uint16_t>(i);
  }
  std::vector<float> in(static_cast<size_t>(rows * width));
  for (int64_t r = 0; r < rows; ++r) in[static_cast<size_t>(r * width)] = 1.0f;
  std::vector<float> out(static_cast<size_t>(rows * kHalves), kPoison);
  const auto in_rows = cpu::row_pointers(ConstRows(in.data(), rows, width), {}, 0, rows);
  const auto out_rows = cpu::row_pointers(Rows{out.data(), rows, kHalves}, {}, 0, rows);
  std::byte* blocks =
      cpu::scratch(cpu::ScratchUse::inputs, cpu::blocks_of(rows) * products.block_bytes(width));
  cpu::pack_rows(products, blocks, in_rows, width, 0, width);
  for (int64_t n = 0; n < kHalves; n += cpu::kStripOutputs) {
    products.multiply({.out = out_rows.data(),
                       .out_offset = n,
                       .blocks = blocks,
                       .rows = rows,
                       .width = width,
                       .weight = weights.data() + n * width,
                       .weight_stride = width,
                       .type = type,
                       .arranged = false,
                       .outputs = std::min(cpu::kStripOutputs, kHalves - n),
                       .scratch = cpu::scratch(cpu::ScratchUse::strip, cpu::kStripScratchBytes)});
  }
  return {out.end() - kHalves, out.end()};  // the last row
}

TEST(CpuKernels, EveryHalfIsReadExactly) {
  for (const cpu::Kernels* kernels : every_kernels()) {
    for (const cpu::WeightType type : {cpu::WeightType::f16, cpu::WeightType::bf16}) {
      for (const int64_t rows : {1, 5, 33}) {
        for (const int64_t width : {1, 16}) {  // the end of a row, and whole vectors
          SCOPED_TRACE(testing::Message() << kernels->name << ", " << rows << " x " << width);
          const std::vector<float> found = every_half(kernels->f32, type, rows, width);
          for (size_t n = 0; n < found.size(); ++n) {
            const auto bits = static_cast<uint16_t>(n);
            const float exact =
                type == cpu::WeightType::f16 ? f16_to_float(bits) : bf16_to_float(bits);
            ASSERT_TRUE(found[n] == exact || (std::isnan(exact) && std::isnan(found[n]))) << n;
          }
        }
      }
    }
  }
}

TEST(CpuKernels, Bf16ProductsReadEveryNumberThatIsNotDenormalExactly) {
  for (const cpu::Kernels* kernels : every_kernels()) {
    if (!kernels->bf16) continue;
    for (const int64_t rows : {1, 5, 33}) {
      for (const int64_t width : {1, 3, 64}) {
        SCOPED_TRACE(testing::Message() << kernels->name << ", " << rows << " x " << width);
        const std::vector<float> found =
            every_half(*kernels->bf16, cpu::WeightType::bf16, rows, width);
        for (size_t n = 0; n < found.size(); ++n) {
          const float exact = bf16_to_float(static_cast<uint16_t>(n));
          const bool denormal = std::fpclassify(exact) == FP_SUBNORMAL;
          ASSERT_TRUE(found[n] == exact || (std::isnan(exact) && std::isnan(found[n])) ||
                      (denormal && found[n] == 0.0f))
              << n;
        }
      }
    }
  }
}

// Columns may be laid out in several goes, as strips of the product before become ready.
TEST(CpuKernels, BlocksArePackedInAnyNumberOfGoes) {
  constexpr int64_t kRows = 13;
  ThreadPool pool(1);
  for (const cpu::Kernels* kernels : every_kernels()) {
    for (const cpu::Products* products : {&kernels->f32, kernels->bf16}) {
      if (!products) continue;
      for (const int64_t width : {31, 32, 33, 96, 100}) {
        const std::vector<float> in = random_floats(kRows * width, 1);
        const Weights weight(random_floats(4 * width, 2), DType::BF16, {4, width});
        const auto product = [&](int64_t step) {
          std::byte* block = cpu::scratch(cpu::ScratchUse::inputs, products->block_bytes(width));
          std::memset(block, 0xFF, static_cast<size_t>(products->block_bytes(width)));  // NaNs
          for (int64_t begin = 0; begin < width; begin += step) {
            auto rows = cpu::row_pointers(ConstRows(in.data(), kRows, width), {}, 0, kRows);
            for (const float*& row : rows) row += begin;
            products->pack(
                {block, rows.data(), kRows, width, begin, std::min(begin + step, width)});
          }
          Output out(kRows, 4);
          const auto out_rows = cpu::row_pointers(out.rows(), {}, 0, kRows);
          cpu::multiply({*kernels, pool}, *products, {out_rows, 0, 0, 4}, block,
                        cpu::WeightMatrix(weight.view, false));
          return out;
        };
        const Output whole = product(width + cpu::kColumnStep);
        EXPECT_TRUE(std::isfinite(whole.values()[0]));
        EXPECT_TRUE(same_bits(whole.values(), product(cpu::kColumnStep).values()));
        EXPECT_TRUE(same_bits(whole.values(), product(2 * cpu::kColumnStep).values()));
      }
    }
  }
}

TEST(CpuKernels, TheChoiceIsDescribed) {
  const CpuKernels found = cpu_kernels();
  const cpu::KernelList all = cpu::all_kernels();
  ASSERT_EQ(found.available.size(), static_cast<size_t>(all.count));
  for (int i = 0; i < all.count; ++i) {
    EXPECT_EQ(found.available[static_cast<size_t>(i)], all.begin[i]->name);
  }
  EXPECT_EQ(found.chosen, cpu::kernels().name);
  EXPECT_EQ(found.bf16, cpu::kernels().bf16 != nullptr);
  const char* forced = std::getenv("KLOTSKI_CPU");
  EXPECT_EQ(found.forced, forced && *forced);
  if (!found.forced) {
    EXPECT_EQ(found.chosen, found.available.back());
  }
}

TEST(CpuKernelsDeathTest, TheEnvironmentNamesAnInstructionSet) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // chosen once: each in a process of its own
  const auto chosen = [](const char* name) {
    setenv("KLOTSKI_CPU", name, 1);
    try {
      std::fputs(cpu::kernels().name, stderr);
    } catch (const Error& error) {
      std::fputs(error.what(), stderr);
    }
    std::_Exit(0);
  };
  const cpu::KernelList all = cpu::all_kernels();
  for (int i = 0; i < all.count; ++i) {
    const char* name = all.begin[i]->name;
    EXPECT_EXIT(chosen(name), testing::ExitedWithCode(0), "^" + std::string(name) + "$");
  }
  EXPECT_EXIT(chosen(""), testing::ExitedWithCode(0),
              "^" + std::string(all.begin[all.count - 1]->name) + "$");
  EXPECT_EXIT(chosen("abacus"), testing::ExitedWithCode(0), "KLOTSKI_CPU.*portable.*abacus");
}

// Rows, parts of rows, and bytes that nobody meant as a row.
TEST(CpuKernels, ExpandAsTheFormatSays) {
  std::mt19937 random(1);
  for (const int64_t columns : {1, 63, 64, 65, 192, 1000, 4096}) {
    constexpr int64_t kRows = 5;
    Weights weights(random_floats(kRows * columns, 3), kCompactType, {kRows, columns});
    for (const bool hostile : {false, true}) {
      if (hostile) {
        for (std::byte& byte : weights.bytes) byte = static_cast<std::byte>(random());
      }
      for (const int64_t first : {int64_t{0}, columns / 2 / 64 * 64}) {
        const int64_t count = columns - first;
        const int64_t stride = cpu::expanded_stride(count, sizeof(uint16_t));
        for (const cpu::Kernels* kernels : every_kernels()) {
          std::vector<uint16_t> out(static_cast<size_t>(kRows * stride));
          kernels->expand({.rows = weights.bytes.data(),
                           .stride = compact_row_bytes(columns),
                           .count = kRows,
                           .header_bytes = compact_header_bytes(columns),
                           .first_column = first,
                           .columns = count,
                           .out = out.data(),
                           .out_stride = stride});
          for (int64_t row = 0; row < kRows; ++row) {
            std::vector<uint16_t> expected(static_cast<size_t>(count));
            expand_row(weights.bytes.data() + row * compact_row_bytes(columns), columns, first,
                       expected);
            const auto found = std::span(out).subspan(static_cast<size_t>(row * stride),
                                                      static_cast<size_t>(count));
            ASSERT_TRUE(std::equal(found.begin(), found.end(), expected.begin()))
                << kernels->name << ", " << columns << " columns from " << first;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace klotski
