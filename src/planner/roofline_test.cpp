#include "planner/roofline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "base/error.h"
#include "planner/block_model.h"
#include "planner/testing.h"

namespace klotski {
namespace {

// The machine of figures 4 and 5: an L4 over the memory of its host.
const LevelPair kL4{.upper = {.peak_flops_per_second = 121e12, .memory_bytes_per_second = 300e9},
                    .lower = {.peak_flops_per_second = 1.6e12, .memory_bytes_per_second = 100e9},
                    .link_bytes_per_second = 16e9};

// Mixtral-8x7B.
constexpr double kHidden = 4096, kFfn = 14336, kExperts = 8, kTopK = 2;
constexpr double kQueryHeads = 32, kKvHeads = 8, kHeadSize = 128;

// Decode attention of one layer without projections (figure 4): every query head multiplies the
// context's keys and then its values; the bytes are those of the cache, which lies in the lower
// memory.
Operation attention(double batch, double context, double bytes_per_element) {
  const double bytes = batch * context * 2 * kKvHeads * kHeadSize * bytes_per_element;
  return {.flops = batch * context * 2 * 2 * kQueryHeads * kHeadSize,
          .upper_bytes = bytes,
          .lower_bytes = bytes};
}

// The experts of one layer in f16 (figure 5), all of them activated: their weights cross the link
// once a batch and are read from the upper memory once a micro-batch.
Operation expert_ffn(double batch, double micro_batch) {
  const double weights = 3 * kHidden * kFfn;
  const double bytes = kExperts * weights * 2;
  return {.flops = batch * kTopK * 2 * weights,
          .upper_bytes = bytes * batch / std::min(batch, micro_batch),
          .lower_bytes = bytes};
}

TEST(RooflineMixtralOnL4, AttentionLiesLeftOfTheFirstTurningPoint) {
  // P1 = 1.6 TFLOP/s / 16 GB/s. Four query heads share a key, each with one multiplication and one
  // addition: 2 * 4 / 2 bytes = 4 FLOPs a byte in f16, four times that in int4.
  EXPECT_DOUBLE_EQ(first_turning_point(kL4), 100);
  for (const double batch : {1.0, 32.0, 4096.0}) {
    for (const double context : {1.0, 512.0, 32768.0}) {
      const Operation f16 = attention(batch, context, 2), int4 = attention(batch, context, 0.5);
      EXPECT_DOUBLE_EQ(f16.lower_intensity(), 4);
      EXPECT_DOUBLE_EQ(int4.lower_intensity(), 16);
      EXPECT_TRUE(better_below(kL4, f16));
      EXPECT_TRUE(better_below(kL4, int4));
      EXPECT_EQ(attainable_above(kL4, int4).roof, Roof::link);
    }
  }
  EXPECT_DOUBLE_EQ(attainable_above(kL4, attention(8, 512, 2)).flops_per_second, 64e9);
  EXPECT_DOUBLE_EQ(attainable_below(kL4, attention(8, 512, 2)).flops_per_second, 400e9);
  EXPECT_EQ(attainable_below(kL4, attention(8, 512, 2)).roof, Roof::memory);
}

TEST(RooflineMixtralOnL4, ExpertsCrossBothTurningPointsAsTheBatchGrows) {
  // A token chooses 2 of 8 experts: batch * 2 * 2 FLOPs for 8 * 2 bytes a weight, batch / 4 FLOPs a
  // byte.
  EXPECT_DOUBLE_EQ(expert_ffn(400, 128).lower_intensity(), 100);
  // P1 = 100 FLOPs a byte is reached with 400 tokens.
  EXPECT_TRUE(better_below(kL4, expert_ffn(1, 128)));
  EXPECT_TRUE(better_below(kL4, expert_ffn(400, 128)));
  EXPECT_FALSE(better_below(kL4, expert_ffn(401, 128)));
  // Micro-batches of 128 read the upper memory with 32 FLOPs a byte, 9.6 TFLOP/s at 300 GB/s; the
  // link supplies as much from P2 = 9.6 TFLOP/s / 16 GB/s = 600 FLOPs a byte on, with 2400 tokens.
  EXPECT_DOUBLE_EQ(second_turning_point(kL4, expert_ffn(2400, 128)), 600);
  EXPECT_EQ(attainable_above(kL4, expert_ffn(2399, 128)).roof, Roof::link);
  EXPECT_EQ(attainable_above(kL4, expert_ffn(2400, 128)).roof, Roof::memory);
  EXPECT_DOUBLE_EQ(attainable_above(kL4, expert_ffn(2400, 128)).flops_per_second, 9.6e12);
  EXPECT_DOUBLE_EQ(attainable_above(kL4, expert_ffn(9600, 128)).flops_per_second, 9.6e12);
}

TEST(RooflineMixtralOnL4, TheBalanceMovesWithTheMicroBatch) {
  // Equation 11: 300 GB/s to 16 GB/s, 18.75 micro-batches a batch, whatever their size ...
  for (const double micro_batch : {32.0, 128.0, 512.0}) {
    const Operation operation = expert_ffn(18.75 * micro_batch, micro_batch);
    EXPECT_DOUBLE_EQ(second_turning_point(kL4, operation), operation.lower_intensity());
  }
  // ... until the compute roof is lower: 121 TFLOP/s / 16 GB/s = 7562.5 FLOPs a byte, 30250 tokens.
  const Operation whole = expert_ffn(30250, 30250);
  EXPECT_DOUBLE_EQ(second_turning_point(kL4, whole), 7562.5);
  EXPECT_EQ(attainable_above(kL4, whole).roof, Roof::compute);
  EXPECT_EQ(attainable_above(kL4, expert_ffn(30249, 30249)).roof, Roof::link);
}

TEST(RooflineMixtralOnL4, AttentionBelowAndExpertsAbove) {
  EXPECT_TRUE(better_below(kL4, attention(1024, 512, 2)));
  EXPECT_FALSE(better_below(kL4, expert_ffn(1024, 128)));
}

TEST(Roofline, OverADiskEverythingMovesUp) {
  for (const double disk_bytes_per_second : {0.0, 3e9}) {
    const LevelPair levels{.upper = kL4.lower,
                           .lower = {.memory_bytes_per_second = disk_bytes_per_second},
                           .link_bytes_per_second = 3e9};
    EXPECT_EQ(first_turning_point(levels), 0);
    EXPECT_FALSE(better_below(levels, attention(1, 1, 2)));
    EXPECT_EQ(attainable_below(levels, attention(1, 1, 2)).flops_per_second, 0);
    EXPECT_DOUBLE_EQ(attainable_above(levels, attention(1, 1, 2)).flops_per_second, 12e9);
  }
}

TEST(Roofline, AMemoryThatIsNotReadLimitsNothing) {
  const Operation nothing_below{.flops = 1e9, .upper_bytes = 1e9, .lower_bytes = 0};
  EXPECT_EQ(nothing_below.lower_intensity(), std::numeric_limits<double>::infinity());
  EXPECT_DOUBLE_EQ(attainable_above(kL4, nothing_below).flops_per_second, 300e9);  // equation 8
  const Operation nothing_above{.flops = 1e9, .upper_bytes = 0, .lower_bytes = 1e9};
  EXPECT_EQ(attainable_above(kL4, nothing_above).roof, Roof::link);
  EXPECT_DOUBLE_EQ(second_turning_point(kL4, nothing_above), 7562.5);
}

TEST(Roofline, ALinkFasterThanTheLowerMemoryAlwaysPays) {
  LevelPair levels = kL4;
  levels.link_bytes_per_second = 150e9;
  EXPECT_EQ(first_turning_point(levels), 0);
  EXPECT_FALSE(better_below(levels, attention(1, 512, 2)));
  levels.link_bytes_per_second = 100e9;  // as fast as the lower memory: no gain up to its peak
  EXPECT_DOUBLE_EQ(first_turning_point(levels), 16);
  EXPECT_TRUE(better_below(levels, attention(1, 512, 2)));
}

TEST(Roofline, NonsenseIsRefused) {
  const Operation good = attention(1, 1, 2);
  EXPECT_THROW(first_turning_point({}), Error);
  LevelPair no_link = kL4, no_memory = kL4;
  no_link.link_bytes_per_second = 0;
  no_memory.lower.memory_bytes_per_second = 0;
  EXPECT_THROW(attainable_above(no_link, good), Error);
  EXPECT_THROW(attainable_below(no_memory, good), Error);
  EXPECT_THROW(attainable_above(kL4, {}), Error);
  EXPECT_THROW(attainable_above(kL4, {.flops = 1, .upper_bytes = 1, .lower_bytes = -1}), Error);
  EXPECT_THROW(attainable_below(kL4, {.flops = std::nan(""), .upper_bytes = 1, .lower_bytes = 1}),
               Error);
}

TEST(Roofline, RoofsHaveNames) {
  EXPECT_EQ(roof_name(Roof::compute), "compute");
  EXPECT_EQ(roof_name(Roof::memory), "memory");
  EXPECT_EQ(roof_name(Roof::link), "link");
}

class RooflineProperties : public testing::Test {
 protected:
  double between(double low, double high) {  // evenly by order of magnitude
    return std::exp(std::uniform_real_distribution<double>(std::log(low), std::log(high))(random_));
  }
  LevelPair levels() {
    return {.upper = {.peak_flops_per_second = between(1e9, 1e15),
                      .memory_bytes_per_second = between(1e8, 1e13)},
            .lower = {.peak_flops_per_second = between(1e9, 1e15),
                      .memory_bytes_per_second = between(1e8, 1e13)},
            .link_bytes_per_second = between(1e8, 1e12)};
  }
  Operation operation() {
    return {.flops = between(1e6, 1e15),
            .upper_bytes = between(1e6, 1e11),
            .lower_bytes = between(1e6, 1e11)};
  }
  std::mt19937 random_{1};
};

TEST_F(RooflineProperties, AttainableIsTheLowestRoofAndTheRoofIsNamed) {
  for (int i = 0; i < 2000; ++i) {
    const LevelPair at = levels();
    const Operation x = operation();
    const double compute = at.upper.peak_flops_per_second;
    const double memory = at.upper.memory_bytes_per_second * x.upper_intensity();
    const double link = at.link_bytes_per_second * x.lower_intensity();
    const Attainable above = attainable_above(at, x);
    EXPECT_EQ(above.flops_per_second, std::min({compute, memory, link}));
    EXPECT_EQ(above.flops_per_second, above.roof == Roof::compute  ? compute
                                      : above.roof == Roof::memory ? memory
                                                                   : link);
    EXPECT_EQ(attainable_below(at, x).flops_per_second,
              std::min(at.lower.peak_flops_per_second,
                       at.lower.memory_bytes_per_second * x.lower_intensity()));
  }
}

TEST_F(RooflineProperties, MoreIntensityIsNeverSlower) {
  for (int i = 0; i < 2000; ++i) {
    const LevelPair at = levels();
    const Operation x = operation();
    Operation less_above = x, less_below = x;
    less_above.upper_bytes /= between(1, 1e3);
    less_below.lower_bytes /= between(1, 1e3);
    const double before = attainable_above(at, x).flops_per_second;
    EXPECT_GE(attainable_above(at, less_above).flops_per_second, before);
    EXPECT_GE(attainable_above(at, less_below).flops_per_second, before);
    EXPECT_GE(attainable_below(at, less_below).flops_per_second,
              attainable_below(at, x).flops_per_second);
  }
}

TEST_F(RooflineProperties, TurningPointsSeparateTheRegions) {
  int64_t moved_by_intensity = 0, never_moved = 0;
  for (int i = 0; i < 5000; ++i) {
    const LevelPair at = levels();
    const Operation x = operation();
    const double first = first_turning_point(at), second = second_turning_point(at, x);
    const bool link_binds = attainable_above(at, x).roof == Roof::link;
    // Random doubles do not meet a turning point; rounding cannot matter.
    EXPECT_EQ(link_binds, x.lower_intensity() < second);
    if (link_binds) {
      EXPECT_EQ(better_below(at, x), x.lower_intensity() <= first);
    }
    if (at.lower.memory_bytes_per_second < at.link_bytes_per_second) continue;
    const double resident = second * at.link_bytes_per_second;
    EXPECT_EQ(first <= second, at.lower.peak_flops_per_second <= resident * (1 + 1e-12));
    if (first <= second) {
      EXPECT_EQ(better_below(at, x), x.lower_intensity() <= first);
      moved_by_intensity += better_below(at, x) ? 0 : 1;
    } else {  // micro-batches too small for the upper processor: no batch is large enough
      EXPECT_TRUE(better_below(at, x));
      ++never_moved;
    }
  }
  EXPECT_GT(moved_by_intensity, 100);
  EXPECT_GT(never_moved, 100);
}

// Weights that are made where they are needed come from no disk.
TEST(Roofline, NoLevelsWithoutADisk) {
  Bench bench;
  const std::optional<NamedLevels> found = levels_of_weights(bench.prediction_inputs());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->levels.link_bytes_per_second, bench.profile.machine.disk().bytes_per_second);
  EXPECT_EQ(found->levels.upper.memory_bytes_per_second,
            bench.profile.machine.cpu().memory_bytes_per_second);
  EXPECT_EQ(found->levels.lower.peak_flops_per_second, 0);
  EXPECT_EQ(found->lower, "disk");
  bench.profile.machine.disk().bytes_per_second = 0;
  EXPECT_FALSE(levels_of_weights(bench.prediction_inputs()));
}

// A device computes with what crosses its link, from main memory, whose processor may compute too.
TEST(Roofline, LevelsOfADeviceAreItsMemoryTheLinkAndMainMemory) {
  Bench bench;
  MachineProfile& machine = bench.profile.machine;
  machine.processors.push_back({.name = "a device"});
  machine.links.push_back({.weights = growing(1e-10)});  // 10 GB/s
  LayerProfile& layer = bench.profile.model.kinds.front();
  layer.expert = Curve({1, 512}, {1e-6, 4e-6});
  layer.expert_on_cpu = Curve({1, 32}, {1e-5, 8e-5});
  PredictionInputs with = bench.prediction_inputs();
  with.facts = [](const WeightUnit&) {
    return UnitFacts{.read_bytes = 2'000'000, .own_bytes = 1'000'000};
  };
  const NamedLevels found = levels_of_weights(with).value();
  const auto flops = [&](double rows) { return expert_operation(with, LayerId(0), rows).flops; };
  EXPECT_EQ(found.upper, "GPU memory");
  EXPECT_EQ(found.lower, "memory");
  EXPECT_DOUBLE_EQ(found.levels.upper.memory_bytes_per_second, 1e12);  // 1 MB in 1 us
  EXPECT_DOUBLE_EQ(found.levels.upper.peak_flops_per_second, flops(512) / 4e-6);
  EXPECT_DOUBLE_EQ(found.levels.link_bytes_per_second, 1e10);
  EXPECT_EQ(found.levels.lower.memory_bytes_per_second, machine.cpu().memory_bytes_per_second);
  EXPECT_DOUBLE_EQ(found.levels.lower.peak_flops_per_second, flops(32) / 8e-5);
  EXPECT_EQ(expert_operation(with, LayerId(0), 1).lower_bytes, 1e6) << "what crosses the link";
  machine.disk().bytes_per_second = 0;
  EXPECT_TRUE(levels_of_weights(with));
  layer.expert_on_cpu = {};
  EXPECT_EQ(levels_of_weights(with)->levels.lower.peak_flops_per_second, 0);
}

}  // namespace
}  // namespace klotski
