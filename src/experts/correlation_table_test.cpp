#include "experts/correlation_table.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/testing.h"

namespace klotski {
namespace {

RoutingTraceShape shape_of(int layers, int experts, int top_k) {
  RoutingTraceShape shape{"test", {}};
  for (int i = 0; i < layers; ++i) shape.layers.push_back({LayerId(2 * i), experts, top_k});
  return shape;
}

// [routed layer][token * top_k]
using Choices = std::vector<std::vector<ExpertId>>;

Choices random_choices(std::mt19937& random, const RoutingTraceShape& shape, int64_t tokens) {
  Choices choices;
  for (const RoutedLayer& layer : shape.layers) {
    choices.emplace_back();
    std::vector<int> experts(static_cast<size_t>(layer.experts));
    for (size_t i = 0; i < experts.size(); ++i) experts[i] = static_cast<int>(i);
    for (int64_t token = 0; token < tokens; ++token) {
      for (size_t k = 0; k < static_cast<size_t>(layer.top_k); ++k) {
        std::swap(experts[k], experts[k + random() % (experts.size() - k)]);
        choices.back().push_back(ExpertId(experts[k]));
      }
    }
  }
  return choices;
}

GroupChoices group_of(const RoutingTraceShape& shape, const Choices& choices, int64_t tokens) {
  GroupChoices group(shape, tokens);
  for (const auto& layer : choices) group.add_layer(layer);
  return group;
}

void observe_all(CorrelationTable& table, const GroupChoices& group) {
  for (size_t i = 0; i < table.shape().layers.size(); ++i) table.observe_layer(i, group);
}

std::vector<int> ids(const std::vector<ExpectedExpert>& experts) {
  std::vector<int> result;
  for (const ExpectedExpert& one : experts) result.push_back(one.expert.value);
  return result;
}

TEST(CorrelationTable, NothingObservedGivesNothing) {
  const auto shape = shape_of(2, 4, 1);
  const CorrelationTable table(shape);
  const GroupChoices group = group_of(shape, {{ExpertId(1)}, {ExpertId(2)}}, 1);
  EXPECT_TRUE(table.hot_experts(0, group, 4).empty());
  EXPECT_TRUE(table.hot_experts(1, group, 4).empty());
}

// The example of figure 8: after expert 0 most tokens go to expert 2, after expert 1 to expert 3.
TEST(CorrelationTable, FollowsThePathsOfTheGroup) {
  const auto shape = shape_of(2, 4, 1);
  CorrelationTable table(shape);
  const int counts[2][4] = {{38, 27, 97, 15}, {66, 35, 41, 117}};
  for (int from = 0; from < 2; ++from) {
    for (int to = 0; to < 4; ++to) {
      const auto n = static_cast<size_t>(counts[from][to]);
      const Choices choices = {std::vector<ExpertId>(n, ExpertId(from)),
                               std::vector<ExpertId>(n, ExpertId(to))};
      observe_all(table, group_of(shape, choices, counts[from][to]));
    }
  }
  const auto hot = [&](std::vector<ExpertId> path, int64_t count) {
    GroupChoices group(shape, static_cast<int64_t>(path.size()));
    group.add_layer(path);
    return ids(table.hot_experts(1, group, count));
  };
  EXPECT_EQ(hot({ExpertId(0)}, 4), (std::vector<int>{2, 0, 1, 3}));
  EXPECT_EQ(hot({ExpertId(1)}, 2), (std::vector<int>{3, 0}));
  EXPECT_EQ(hot({ExpertId(0), ExpertId(1), ExpertId(1)}, 1), (std::vector<int>{3}));
  EXPECT_EQ(hot({ExpertId(0), ExpertId(0), ExpertId(1)}, 1), (std::vector<int>{2}));
  // Expert 3 never came before: the layer's popularity decides.
  EXPECT_EQ(hot({ExpertId(3)}, 2), (std::vector<int>{2, 3}));
  EXPECT_EQ(hot({ExpertId(0)}, 0), (std::vector<int>{}));
  EXPECT_EQ(hot({ExpertId(0)}, 100).size(), 4u);
}

TEST(CorrelationTable, TiesGoToTheLowerExpert) {
  const auto shape = shape_of(1, 8, 4);
  CorrelationTable table(shape);
  observe_all(table, group_of(shape, {{ExpertId(7), ExpertId(2), ExpertId(5), ExpertId(3)}}, 1));
  EXPECT_EQ(ids(table.hot_experts(0, GroupChoices(shape, 1), 8)), (std::vector<int>{2, 3, 5, 7}));
}

// A table that counts every path in a map, with shares in the correlation table's fixed point.
class NaiveTable {
 public:
  using Path = std::vector<int>;

  NaiveTable(const RoutingTraceShape& shape, size_t length) : shape_(shape), length_(length) {}

  void observe(const Choices& choices, int64_t tokens) {
    for (size_t j = 0; j < shape_.layers.size(); ++j) {
      for (int64_t token = 0; token < tokens; ++token) {
        for (const int chosen : of(choices, j, token)) {
          ++popularity_[j][chosen];
          for (const Path& path : paths(choices, j, token)) ++counts_[{j, path}][chosen];
        }
      }
    }
  }

  std::vector<int> hot(size_t j, const Choices& choices, int64_t tokens, size_t count) {
    std::map<int, uint64_t> scores;
    std::map<Path, uint64_t> taken;
    uint64_t unknown = 0;
    for (int64_t token = 0; token < tokens; ++token) {
      for (const Path& path : paths(choices, j, token)) {
        counts_.count({j, path}) ? ++taken[path] : ++unknown;
      }
    }
    for (const auto& one : taken) add(counts_[{j, one.first}], one.second, scores);
    if (unknown) add(popularity_[j], unknown, scores);
    std::vector<std::pair<int64_t, int>> ranked;
    for (const auto& one : scores) ranked.push_back({-static_cast<int64_t>(one.second), one.first});
    std::sort(ranked.begin(), ranked.end());
    std::vector<int> result;
    for (size_t i = 0; i < std::min(count, ranked.size()); ++i) result.push_back(ranked[i].second);
    return result;
  }

 private:
  std::vector<int> of(const Choices& choices, size_t layer, int64_t token) const {
    std::vector<int> result;
    const int64_t top_k = shape_.layers[layer].top_k;
    for (int64_t k = 0; k < top_k; ++k) {
      result.push_back(choices[layer][static_cast<size_t>(token * top_k + k)].value);
    }
    return result;
  }
  std::vector<Path> paths(const Choices& choices, size_t j, int64_t token) const {
    std::vector<Path> result = {{}};
    for (size_t layer = j - std::min(j, length_); layer < j; ++layer) {
      std::vector<Path> longer;
      for (const Path& path : result) {
        for (const int expert : of(choices, layer, token)) {
          longer.push_back(path);
          longer.back().push_back(expert);
        }
      }
      result = longer;
    }
    return result;
  }
  static void add(const std::map<int, uint64_t>& counts, uint64_t weight,
                  std::map<int, uint64_t>& scores) {
    uint64_t sum = 0;
    for (const auto& one : counts) sum += one.second;
    for (const auto& one : counts) scores[one.first] += weight * ((one.second << 20) / sum);
  }

  RoutingTraceShape shape_;
  size_t length_;
  std::map<std::pair<size_t, Path>, std::map<int, uint64_t>> counts_;
  std::map<size_t, std::map<int, uint64_t>> popularity_;
};

TEST(CorrelationTable, EqualsCountingEveryPath) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int length = 1 + round % 3;
    const int experts = round % 10 == 9 ? 120 : 2 + static_cast<int>(random() % 6);
    const auto shape =
        shape_of(1 + static_cast<int>(random() % 5), experts, 1 + static_cast<int>(random() % 2));
    CorrelationTable table(shape, length);
    NaiveTable naive(shape, static_cast<size_t>(length));
    for (int step = 0; step < 4; ++step) {
      const auto tokens = static_cast<int64_t>(random() % 20);
      const Choices choices = random_choices(random, shape, tokens);
      const GroupChoices group = group_of(shape, choices, tokens);
      for (size_t j = 0; j < shape.layers.size(); ++j) {
        const auto count = static_cast<int64_t>(random() % 5);
        ASSERT_EQ(ids(table.hot_experts(j, group, count)),
                  naive.hot(j, choices, tokens, static_cast<size_t>(count)))
            << "round " << round;
      }
      observe_all(table, group);
      naive.observe(choices, tokens);
    }
  }
}

TEST(CorrelationTable, RecentTextMatters) {
  const auto shape = shape_of(1, 4, 1);
  CorrelationTable table(shape);
  const auto observe = [&](int expert, int64_t tokens) {
    GroupChoices group(shape, tokens);
    group.add_layer(std::vector<ExpertId>(static_cast<size_t>(tokens), ExpertId(expert)));
    table.observe_layer(0, group);
  };
  observe(0, 40 * kTokensPerHalving);
  observe(1, 3 * kTokensPerHalving);
  EXPECT_EQ(ids(table.hot_experts(0, GroupChoices(shape, 1), 1)), (std::vector<int>{1}));
}

TEST(CorrelationTable, ManyPathsStayBounded) {
  const auto shape = shape_of(4, 1000, 1);
  CorrelationTable table(shape, 3);
  std::mt19937 random(3);
  for (int i = 0; i < 5; ++i) {
    observe_all(table, group_of(shape, random_choices(random, shape, 1000), 1000));
  }
  // 5000 different paths were seen; the counters suffice for 1048, other paths use popularity.
  const auto path =
      std::filesystem::path(testing::TempDir()) / (std::to_string(::getpid()) + "_many_paths.json");
  table.save(path);
  const std::string text = read_text_file(path, 1 << 30);
  size_t paths = 0;
  for (size_t at = text.find("\"path\":"); at != std::string::npos;
       at = text.find("\"path\":", at + 1)) {
    ++paths;
  }
  EXPECT_LE(paths, 1u + 3u * 1048u);
  EXPECT_EQ(
      table.hot_experts(3, group_of(shape, random_choices(random, shape, 100), 100), 5).size(), 5u);
  std::filesystem::remove(path);
}

class CorrelationFile : public testing::Test {
 protected:
  std::filesystem::path path_ = std::filesystem::path(testing::TempDir()) /
                                (std::to_string(::getpid()) + "_correlation_test.json");
  RoutingTraceShape shape_ = shape_of(3, 5, 2);

  void TearDown() override { std::filesystem::remove(path_); }

  void write(const std::string& text) { std::ofstream(path_) << text; }
  std::string load_refusal() {
    return refusal([&] { CorrelationTable::load(path_, shape_); });
  }
};

TEST_F(CorrelationFile, ComesBackTheSame) {
  std::mt19937 random(11);
  for (const int length : {1, 2}) {
    CorrelationTable table(shape_, length);
    observe_all(table, group_of(shape_, random_choices(random, shape_, 50), 50));
    table.save(path_);
    CorrelationTable back = CorrelationTable::load(path_, shape_);
    EXPECT_EQ(back.path_length(), length);
    const std::string first = read_text_file(path_, 1 << 20);
    back.save(path_);
    EXPECT_EQ(read_text_file(path_, 1 << 20), first);
    const GroupChoices probe = group_of(shape_, random_choices(random, shape_, 4), 4);
    for (size_t j = 0; j < 3; ++j) {
      EXPECT_EQ(back.hot_experts(j, probe, 3), table.hot_experts(j, probe, 3));
    }
  }
}

TEST_F(CorrelationFile, OtherModelsAndDamageAreRefused) {
  CorrelationTable table(shape_);
  std::mt19937 random(2);
  observe_all(table, group_of(shape_, random_choices(random, shape_, 50), 50));
  table.save(path_);
  const std::string good = read_text_file(path_, 1 << 20);
  EXPECT_NE(refusal([&] { CorrelationTable::load(path_, shape_of(3, 6, 2)); }), "");
  EXPECT_NE(refusal([&] { CorrelationTable::load(path_, shape_of(2, 5, 2)); }), "");
  const auto damaged = [&](const std::string& what, const std::string& by) {
    std::string text = good;
    const size_t at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    text.replace(at, what.size(), by);
    write(text);
    return load_refusal();
  };
  write(good);
  EXPECT_EQ(load_refusal(), "");
  EXPECT_NE(damaged("\"version\":1", "\"version\":2"), "");
  EXPECT_NE(damaged("\"path_length\":1", "\"path_length\":2"), "");
  EXPECT_NE(damaged("\"path_length\":1", "\"path_length\":9"), "");
  EXPECT_NE(damaged("\"tokens\":50", "\"tokens\":-1"), "");
  EXPECT_NE(damaged("\"tokens\":50", "\"tokens\":65536"), "");
  EXPECT_NE(damaged("\"popularity\":[", "\"popularity\":[1,"), "");
  EXPECT_NE(damaged("\"path\":[4]", "\"path\":[5]"), "");
  EXPECT_NE(damaged("\"path\":[4]", "\"path\":[3]"), "");
  EXPECT_NE(damaged("\"path\":[4]", "\"path\":[]"), "");
  EXPECT_NE(damaged("\"counts\":[", "\"counts\":[99999999,"), "");
  EXPECT_NE(damaged("\"paths\":[", "\"ways\":["), "");
  for (size_t size = 0; size + 1 < good.size(); size += 7) {
    write(good.substr(0, size));
    EXPECT_NE(load_refusal(), "") << size;
  }
}

TEST_F(CorrelationFile, FailedSaveLeavesTheOldFile) {
  write("old");
  EXPECT_NE(refusal([&] { CorrelationTable(shape_).save(path_ / "below"); }), "");
  EXPECT_EQ(read_text_file(path_, 100), "old");
}

TEST_F(CorrelationFile, WhatIsNotAFileIsNotReplaced) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_NE(refusal([&] { CorrelationTable(shape_).save(path_); }), "");
  EXPECT_EQ(std::filesystem::status(path_).type(), std::filesystem::file_type::fifo);
}

TEST(CorrelationTable, BadUseIsRefused) {
  const auto shape = shape_of(2, 4, 1);
  EXPECT_NE(refusal([&] { CorrelationTable(shape, 0); }), "");
  EXPECT_NE(refusal([&] { CorrelationTable(shape, kMaxPathLength + 1); }), "");
  CorrelationTable table(shape);
  GroupChoices group(shape, 2);
  EXPECT_NE(refusal([&] { table.observe_layer(0, group); }), "");
  EXPECT_NE(refusal([&] { table.hot_experts(1, group, 1); }), "");
  EXPECT_NE(refusal([&] { group.add_layer(std::vector<ExpertId>(3)); }), "");
  EXPECT_NE(refusal([&] { group.add_layer(std::vector<ExpertId>(2, ExpertId(4))); }), "");
  group.add_layer(std::vector<ExpertId>(2));
  group.add_layer(std::vector<ExpertId>(2));
  EXPECT_NE(refusal([&] { group.add_layer(std::vector<ExpertId>(2)); }), "");
  EXPECT_NE(refusal([&] { table.observe_layer(2, group); }), "");
}

// A few milliseconds a layer are allowed; the bound is loose because test machines are busy, and
// only the shortest attempt counts.
TEST(CorrelationTable, IsCheapForALargeGroup) {
  const auto shape = shape_of(4, 128, 8);
  std::mt19937 random(1);
  const GroupChoices group = group_of(shape, random_choices(random, shape, 2048), 2048);
  for (const int length : {1, 2}) {
    CorrelationTable table(shape, length);
    double least = 1e9;  // seconds
    for (int i = 0; i < 5; ++i) {
      const double begin = processor_seconds();
      table.hot_experts(3, group, 8);
      table.observe_layer(3, group);
      least = std::min(least, processor_seconds() - begin);
    }
    RecordProperty(fmt::format("ms_length_{}", length), fmt::format("{:.2f}", 1e3 * least));
    EXPECT_LT(least, 0.5);
  }
}

}  // namespace
}  // namespace klotski
