#include "kernels/cpu/formats.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "kernels/cpu/testing.h"
#include "kernels/testing.h"
#include "tensor/testing.h"

namespace klotski {
namespace {

using testing_formats::DrillMatrix;

// One matrix in three forms: in a format without kernels, and as elements, whole or rounded.
struct ThreeForms {
  DrillMatrix packed;
  Weights plain;
  Weights rounded;

  ThreeForms(Shape shape, unsigned seed)
      : packed(random_floats(shape[0] * shape[1], seed), shape),
        plain(testing_formats::expanded(packed.view()), DType::F32, shape),
        rounded(testing_formats::expanded(packed.view()), DType::BF16, shape) {}

  // The elements that products of some precision multiply the packed matrix as.
  const TensorView& multiplied(bool rounds) const { return rounds ? rounded.view : plain.view; }
};

TEST(CpuFormats, AFormatWithoutKernelsIsMultipliedAsItsNumbers) {
  for (const Shape& shape : {Shape{1, 32}, Shape{33, 96}, Shape{200, 4128}, Shape{100, 8192}}) {
    const ThreeForms weight(shape, 7);
    for (const int64_t rows : {1, 20, 40}) {
      const std::vector<float> in = random_floats(rows * shape[1], static_cast<unsigned>(rows));
      with_every_processor([&](const CpuProcessor& processor) {
        for (const Precision precision : kPrecisions) {
          for (const int64_t from : {int64_t{0}, shape[1] / 64 * 32}) {
            const auto run = [&](const TensorView& matrix) {
              const TensorView part =
                  columns_between(rows_between(matrix, shape[0] / 2, shape[0]), from, shape[1]);
              Output out(rows, part.rows());
              std::vector<float> some;
              for (int64_t r = 0; r < rows; ++r) {
                const float* row = in.data() + r * shape[1];
                some.insert(some.end(), row + from, row + shape[1]);
              }
              processor.matmul(out.rows(), {some.data(), rows, part.columns()}, part, {},
                               precision);
              EXPECT_TRUE(out.guards_are_whole());
              return out;
            };
            ASSERT_TRUE(
                same_bits(run(weight.packed.view()).values(),
                          run(weight.multiplied(cpu::rounds_inputs(processor.kernels(), precision)))
                              .values()))
                << format_shape(shape) << ", " << rows << " rows, from " << from;
          }
        }
      });
    }
  }
}

TEST(CpuFormats, ExpertsOfAFormatWithoutKernelsAreThoseOfTheirNumbers) {
  constexpr int64_t kIn = 96;
  constexpr int64_t kWidth = 160;
  const ThreeForms gate({kWidth, kIn}, 1);
  const ThreeForms up({kWidth, kIn}, 2);
  const ThreeForms down({kIn, kWidth}, 3);
  for (const int64_t rows : {1, 17, 270}) {
    const std::vector<float> in = random_floats(rows * kIn, static_cast<unsigned>(rows));
    const auto run = [&](const auto& experts, const TensorView& gate_view,
                         const TensorView& up_view, const TensorView& down_view) {
      Output out(rows, kIn);
      const ExpertProduct product{.out = out.rows(),
                                  .in = {in.data(), rows, kIn},
                                  .out_rows = {},
                                  .in_rows = {},
                                  .gate = gate_view,
                                  .up = up_view,
                                  .down = down_view};
      experts(std::span(&product, 1), Precision::bf16);
      return out;
    };
    const auto check = [&](const auto& experts, bool rounds) {
      const TensorView& up_numbers = up.multiplied(rounds);
      const Output expected =
          run(experts, gate.multiplied(rounds), up_numbers, down.multiplied(rounds));
      for (const TensorView& up_view : {up.packed.view(), up_numbers}) {
        const Output found = run(experts, gate.packed.view(), up_view, down.packed.view());
        ASSERT_TRUE(same_bits(found.values(), expected.values())) << rows << " rows";
      }
    };
    // Gate and up are multiplied by the same inputs: F32 numbers of one keep the other's whole.
    const auto check_mixed = [&](const auto& experts, bool rounds) {
      const TensorView& down_numbers = down.multiplied(rounds);
      const Output found = run(experts, gate.packed.view(), up.plain.view, down.packed.view());
      const Output expected = run(experts, gate.plain.view, up.plain.view, down_numbers);
      ASSERT_TRUE(same_bits(found.values(), expected.values())) << rows << " rows, mixed";
    };
    check([](std::span<const ExpertProduct> products,
             Precision precision) { reference_processor().experts(products, precision); },
          true);
    with_every_processor([&](const CpuProcessor& processor) {
      const auto experts = [&](std::span<const ExpertProduct> products, Precision precision) {
        processor.experts(products, precision);
      };
      const bool rounds = cpu::rounds_inputs(processor.kernels(), Precision::bf16);
      check(experts, rounds);
      check_mixed(experts, rounds);
    });
  }
}

TEST(CpuFormats, ExpandedNumbersOf32BitsAreCountedBeyondTheScratch) {
  const MostWork most{.rows = 16, .in_width = 16384, .expert_width = 64};
  const std::vector<DType> plain = {DType::F32, DType::F16, DType::BF16};
  EXPECT_EQ(cpu_processor().expansion_bytes(most, Precision::bf16, plain), 0u);
  const std::vector<DType> drill = {DType::BF16, testing_formats::drill_type()};
  // 32 rows of 16384 numbers are 1 MiB in 16 bits and 2 MiB in 32, which routers always take.
  EXPECT_GE(cpu_processor().expansion_bytes(most, Precision::bf16, drill),
            (uint64_t{1} << 20) + 16384 * 4);
}

TEST(CpuFormats, TypesThatNoOperationReadsAreRefused) {
  EXPECT_THROW(cpu::format_kernel(DType::I8, false), Error);
}

}  // namespace
}  // namespace klotski
