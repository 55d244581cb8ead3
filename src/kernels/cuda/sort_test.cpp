#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/testing.h"

namespace klotski {
namespace {

using GpuSort = GpuTest;

struct Choices {
  std::vector<ExpertId> experts;
  int64_t top_k;
  int64_t first_row;
  int64_t first_output;
};

// Parts of `rows` rows each; few experts are chosen much more often than the others.
std::vector<Choices> random_parts(const std::vector<int64_t>& rows, int64_t top_k, int64_t experts,
                                  unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Choices> parts;
  int64_t row = 3;
  for (const int64_t count : rows) {
    Choices part{{}, top_k, row, row * top_k + 11};
    for (int64_t i = 0; i < count * top_k; ++i) {
      const double share = static_cast<double>(random()) / 4294967296.0;
      part.experts.emplace_back(static_cast<int64_t>(share * share * double(experts)));
    }
    parts.push_back(std::move(part));
    row += count;
  }
  return parts;
}

void check(const Processor& ops, const std::vector<Choices>& parts, int64_t experts) {
  size_t choices = 0;
  for (const Choices& part : parts) choices += part.experts.size();
  SCOPED_TRACE(std::to_string(choices) + " choices of " + std::to_string(experts));
  std::vector<int32_t> expected_in;
  std::vector<int32_t> expected_out;
  std::vector<float> expected_scales;
  for (int64_t expert = 0; expert < experts; ++expert) {
    for (const Choices& part : parts) {
      for (size_t i = 0; i < part.experts.size(); ++i) {
        if (part.experts[i].value != expert) continue;
        const auto index = static_cast<int64_t>(i);
        expected_in.push_back(static_cast<int32_t>(part.first_row + index / part.top_k));
        expected_out.push_back(static_cast<int32_t>(part.first_output + index));
        expected_scales.push_back(static_cast<float>(part.first_output + index) / 8.0f);
      }
    }
  }
  std::vector<DeviceArray<ExpertId>> arrays;
  std::vector<DeviceArray<float>> scale_arrays;
  std::vector<RoutedRows> routed;
  for (const Choices& part : parts) {
    arrays.emplace_back(std::span<const ExpertId>(part.experts));
    std::vector<float> part_scales;
    for (size_t i = 0; i < part.experts.size(); ++i) {
      part_scales.push_back(static_cast<float>(part.first_output + int64_t(i)) / 8.0f);
    }
    scale_arrays.emplace_back(std::span<const float>(part_scales));
    routed.push_back({arrays.back().span(), part.top_k, part.first_row, part.first_output,
                      scale_arrays.back().span()});
  }
  const DeviceArray<int32_t> in_rows(choices);
  const DeviceArray<int32_t> out_rows(choices);
  const DeviceArray<float> scales(choices);
  ops.sort_by_expert(routed, experts, in_rows.span(), out_rows.span(), {});
  ASSERT_EQ(in_rows.download(), expected_in);
  ASSERT_EQ(out_rows.download(), expected_out);
  ops.sort_by_expert(routed, experts, in_rows.span(), out_rows.span(), scales.span());
  ASSERT_EQ(scales.download(), expected_scales);
  ASSERT_EQ(in_rows.download(), expected_in);
  ASSERT_EQ(out_rows.download(), expected_out);
}

TEST_F(GpuSort, KeepsTheOrderOfPartsAndChoices) {
  for (const int64_t experts : {1, 8, 31, 60, 128}) {
    for (const int64_t top_k : {1, 2, 6}) {
      check(ops(), random_parts({1}, top_k, experts, 1), experts);
      check(ops(), random_parts({3, 0, 17, 1}, top_k, experts, 2), experts);
      check(ops(), random_parts({100, 31, 32, 33, 0}, top_k, experts, 3), experts);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(GpuSort, ManyChoicesOfManyExperts) {
  check(ops(), random_parts({2000, 1, 500, 3000}, 8, 128, 4), 128);
  check(ops(), random_parts({700, 800}, 8, 1024, 5), 1024);
  check(ops(), random_parts({100000, 50000}, 2, 8, 6), 8);
}

TEST_F(GpuSort, TilesThatAreJustFull) {
  for (const int64_t rows : {511, 512, 513, 2048, 2049}) {
    check(ops(), random_parts({rows}, 1, 16, 7), 16);
  }
}

TEST_F(GpuSort, ManyParts) {
  const std::vector<int64_t> rows(150, 5);
  check(ops(), random_parts(rows, 4, 64, 8), 64);
}

TEST_F(GpuSort, AllChooseTheSame) {
  std::vector<Choices> parts = random_parts({1000}, 2, 1, 9);
  for (ExpertId& expert : parts[0].experts) expert = ExpertId(63);
  check(ops(), parts, 64);
}

TEST_F(GpuSort, NoChoicesAreNoWork) {
  ops().sort_by_expert({}, 8, {}, {}, {});
  check(ops(), random_parts({0, 0}, 2, 8, 1), 8);
  ops().memory.finish();
}

}  // namespace
}  // namespace klotski
