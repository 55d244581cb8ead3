#include "schedule/division.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace klotski {
namespace {

double between(std::mt19937_64& random, double least, double most) {
  return std::uniform_real_distribution<double>(least, most)(random);
}

Curve line(double first, double per_row) {
  return Curve({1, 1000}, {first + per_row, first + 1000 * per_row});
}

ExpertCosts random_costs(std::mt19937_64& random) {
  return {.device = line(between(random, 0.01, 0.2), 0.001),
          .cpu = line(between(random, 0.5, 3.0), between(random, 0.001, 0.2)),
          .link = between(random, 0.5, 8.0),
          .down = line(0.02, 0.0001),
          .up = line(0.02, 0.0001),
          .between = 1.0};
}

// Random experts: some on the device, some on their way one after the other, the rest neither; rows
// of all sizes.
std::vector<RoutedExpert> random_experts(std::mt19937_64& random, double link, double& link_free) {
  std::vector<RoutedExpert> experts;
  const auto count = 1 + random() % 9;
  link_free = between(random, -2 * link, link);
  for (uint64_t e = 0; e < count; ++e) {
    RoutedExpert expert{ExpertId(static_cast<int64_t>(e)), 1.0 + static_cast<double>(random() % 60),
                        kNotOnItsWay};
    if (random() % 4 == 0) expert.arrives = 0;
    if (random() % 4 == 0) expert.arrives = link_free += link;
    experts.push_back(expert);
  }
  return experts;
}

// The seconds of a division in which the device computes exactly these experts, from the
// definition. `slice`: the part of one other expert that it computes besides.
struct Slice {
  size_t expert = 0;
  double share = 0;
};
double seconds_of(std::span<const RoutedExpert> experts, uint64_t device, const ExpertCosts& costs,
                  double rows, double link_free, const Slice& slice = {}) {
  std::vector<RoutedExpert> on_device;
  std::vector<RoutedExpert> on_cpu;
  for (size_t i = 0; i < experts.size(); ++i) {
    ((device >> i & 1) != 0 ? on_device : on_cpu).push_back(experts[i]);
  }
  const auto most_rows_first = [](const RoutedExpert& a, const RoutedExpert& b) {
    return a.rows > b.rows;
  };
  std::stable_sort(on_device.begin(), on_device.end(), most_rows_first);
  for (RoutedExpert& expert : on_device) {
    if (expert.arrives == kNotOnItsWay) expert.arrives = link_free += costs.link;
  }
  std::stable_sort(on_device.begin(), on_device.end(),
                   [](const RoutedExpert& a, const RoutedExpert& b) {
                     return std::max(a.arrives, 0.0) < std::max(b.arrives, 0.0);
                   });
  double device_ends = 0;
  for (const RoutedExpert& expert : on_device) {
    device_ends = std::max(device_ends, expert.arrives) + costs.device.at(expert.rows);
  }
  if (on_cpu.empty()) return device_ends;
  if (slice.share > 0) {
    device_ends = std::max(device_ends, std::max(link_free, 0.0) + slice.share * costs.link) +
                  costs.device.at(experts[slice.expert].rows);
  }
  double cpu_ends = costs.down.at(rows);
  double least_up = kNotOnItsWay;  // the CPU may take them in any order
  for (const RoutedExpert& expert : on_cpu) {
    cpu_ends += costs.cpu.at(expert.rows);
    least_up = std::min(least_up, costs.up.at(expert.rows));
  }
  if (slice.share > 0) cpu_ends -= slice.share * costs.cpu.at(experts[slice.expert].rows);
  return std::max(device_ends, cpu_ends + least_up);
}

// Among all ways to divide none is faster but for the device's own time, which differs a little
// with the rows of the experts that come over the link.
TEST(Division, IsAsFastAsTheBestOfAllDivisions) {
  std::mt19937_64 random(7);
  int divided = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    const ExpertCosts costs = random_costs(random);
    double link_free = 0;
    const std::vector<RoutedExpert> experts = random_experts(random, costs.link, link_free);
    const double rows = 64;
    const Division division = divide(experts, costs, rows, link_free);
    double best = kNotOnItsWay;
    uint64_t there = 0;
    for (size_t i = 0; i < experts.size(); ++i) {
      if (experts[i].arrives <= 0) there |= uint64_t{1} << i;
    }
    for (uint64_t device = 0; device < uint64_t{1} << experts.size(); ++device) {
      if ((device & there) != there) continue;
      best = std::min(best, seconds_of(experts, device, costs, rows, link_free));
    }
    double spread = costs.up.at(60) - costs.up.at(1);
    for (size_t i = 0; i < experts.size(); ++i) spread += costs.device.at(60) - costs.device.at(1);
    EXPECT_LE(division.seconds, best + spread) << "trial " << trial;
    EXPECT_GE(division.seconds, best - 1e-9) << "trial " << trial;
    if (!division.cpu.empty() && !division.device.empty()) ++divided;
  }
  EXPECT_GT(divided, 1000);
}

TEST(Division, EveryExpertOnceAndTheSameEveryTime) {
  std::mt19937_64 random(8);
  for (int trial = 0; trial < 300; ++trial) {
    const ExpertCosts costs = random_costs(random);
    double link_free = 0;
    const std::vector<RoutedExpert> experts = random_experts(random, costs.link, link_free);
    const Division division = divide(experts, costs, 64, link_free);
    std::vector<ExpertId> all = division.device;
    all.insert(all.end(), division.cpu.begin(), division.cpu.end());
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all.size(), experts.size());
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], experts[i].expert);
    const Division again = divide(experts, costs, 64, link_free);
    EXPECT_EQ(again.device, division.device);
    EXPECT_EQ(again.cpu, division.cpu);
  }
}

// Mixtral's experts over a PCIe 5 link and on a CPU that reads 240 GB/s: 6.3 ms or 1.5 ms each.
TEST(Division, ACpuThatReadsFasterThanTheLinkTakesMostExperts) {
  const ExpertCosts costs{.device = line(0.14e-3, 0),
                          .cpu = line(1.5e-3, 0),
                          .link = 6.3e-3,
                          .down = line(30e-6, 0),
                          .up = line(30e-6, 0)};
  std::vector<RoutedExpert> experts;
  for (int64_t e = 0; e < 8; ++e) experts.push_back({ExpertId(e), 16, e < 2 ? 0.0 : kNotOnItsWay});
  const Division division = divide(experts, costs, 64, 0);
  EXPECT_EQ(division.device.size(), 3u);  // one comes while the CPU computes five
  EXPECT_EQ(division.cpu.size(), 5u);
  EXPECT_NEAR(division.seconds, 5 * 1.5e-3 + 60e-6, 1e-9);
}

// Thousands of rows take the CPU longer than the link brings all weights.
TEST(Division, ManyRowsLeaveTheCpuNothing) {
  const ExpertCosts costs{.device = line(0.2e-3, 3e-6),
                          .cpu = line(1.5e-3, 60e-6),
                          .link = 6.3e-3,
                          .down = line(30e-6, 1e-6),
                          .up = line(30e-6, 1e-6)};
  std::vector<RoutedExpert> experts;
  for (int64_t e = 0; e < 8; ++e) experts.push_back({ExpertId(e), 4096, kNotOnItsWay});
  EXPECT_TRUE(divide(experts, costs, 16384, 0).cpu.empty());
}

// The seconds of a division of experts with 4 rows each, from the definition.
double recomputed(std::span<const RoutedExpert> experts, const Division& division,
                  const ExpertCosts& costs, double link_free) {
  uint64_t device = 0;
  Slice slice{.expert = 0, .share = division.slice};
  for (size_t i = 0; i < experts.size(); ++i) {
    const auto& there = division.device;
    if (std::find(there.begin(), there.end(), experts[i].expert) != there.end()) {
      device |= uint64_t{1} << i;
    }
    if (experts[i].expert == division.cpu.back()) slice.expert = i;
  }
  return seconds_of(experts, device, costs, 4, link_free, slice);
}

// Divisions with a slice of one expert: as fast as the best of all divisions and slices, where all
// have as many rows. Both processors end together unless the slice is as large as one may be.
TEST(Division, TheLinkBringsWhatItCanOfOneMore) {
  std::mt19937_64 random(17);
  int sliced = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    ExpertCosts costs = random_costs(random);
    double link_free = 0;
    std::vector<RoutedExpert> experts = random_experts(random, costs.link, link_free);
    if (experts.size() > 6) experts.resize(6);
    for (RoutedExpert& expert : experts) expert.rows = 4;
    const double whole = divide(experts, costs, 4, link_free).seconds;
    costs.slices = true;
    const Division division = divide(experts, costs, 4, link_free);
    EXPECT_LE(division.seconds, whole);
    EXPECT_LE(division.slice, kMostSlice);
    if (division.slice == 0) continue;
    ++sliced;
    ASSERT_FALSE(division.cpu.empty());
    uint64_t there = 0;
    for (size_t i = 0; i < experts.size(); ++i) {
      if (experts[i].arrives <= 0) there |= uint64_t{1} << i;
    }
    double best = whole;
    for (uint64_t device = 0; device < uint64_t{1} << experts.size(); ++device) {
      if ((device & there) != there) continue;
      for (size_t i = 0; i < experts.size(); ++i) {
        if ((device >> i & 1) != 0) continue;
        for (double share = 1.0 / 32; share <= kMostSlice; share += 1.0 / 32) {
          best = std::min(best, seconds_of(experts, device, costs, 4, link_free, {i, share}));
        }
      }
    }
    EXPECT_LE(division.seconds, best + 1e-9) << "trial " << trial;
    EXPECT_NEAR(division.seconds, recomputed(experts, division, costs, link_free), 1e-9)
        << "trial " << trial;
  }
  EXPECT_GT(sliced, 300);
}

}  // namespace
}  // namespace klotski
