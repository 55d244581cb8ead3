#include "experts/balanced_kmeans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "base/error.h"

namespace klotski {
namespace {

RoutingPath path(std::initializer_list<int64_t> used) {
  RoutingPath made(4);
  for (const int64_t expert : used) made.add(expert);
  return made;
}

// As in Figure 4 of the paper: two batches of four tokens, one layer of four experts. Each batch
// needs all four experts; exchanged, each needs two, and every expert has twice the tokens.
TEST(BalancedKmeans, TwoBatchesNeedHalfOfTheExpertsEach) {
  const std::vector<RoutingPath> tokens = {path({0, 1}), path({2, 3}), path({2, 3}), path({0, 1}),
                                           path({2, 3}), path({0, 1}), path({0, 1}), path({2, 3})};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const PathClusters clusters = balanced_kmeans(tokens, 2, seed);
    const size_t first = clusters.cluster_of[0];
    EXPECT_EQ(clusters.members(first), (std::vector<size_t>{0, 3, 5, 6}));
    EXPECT_EQ(clusters.members(1 - first), (std::vector<size_t>{1, 2, 4, 7}));
    EXPECT_EQ(clusters.distance_of.back(), 0);
  }
}

// Paths 0, 1, 2 are {0}, {0, 1}, {0, 1}; 3, 4, 5 are {2, 3}, {2, 3}, {3}. Distances within the
// first three: 1, 1, 0; within the others: 0, 1, 1; between: 2 to 4. Whatever the first centroids,
// the clusters are {0, 1, 2} around 1 and {3, 4, 5} around 3, with a sum of 1 + 1.
TEST(BalancedKmeans, FindsTheClustersAndTheirMedoids) {
  const std::vector<RoutingPath> paths = {path({0}),    path({0, 1}), path({0, 1}),
                                          path({2, 3}), path({2, 3}), path({3})};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const PathClusters clusters = balanced_kmeans(paths, 2, seed);
    const size_t first = clusters.cluster_of[0];
    EXPECT_EQ(clusters.members(first), (std::vector<size_t>{0, 1, 2}));
    EXPECT_EQ(clusters.members(1 - first), (std::vector<size_t>{3, 4, 5}));
    EXPECT_EQ(clusters.medoids[first], 1u);
    EXPECT_EQ(clusters.medoids[1 - first], 3u);
    EXPECT_EQ(clusters.distance_of.back(), 2);
  }
}

TEST(BalancedKmeans, OneClusterOrOneForEachPath) {
  const std::vector<RoutingPath> paths = {path({0}), path({1}), path({0, 1})};
  const PathClusters one = balanced_kmeans(paths, 1, 0);
  EXPECT_EQ(one.members(0), (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(one.medoids, (std::vector<size_t>{2}));
  EXPECT_EQ(one.distance_of.back(), 2);
  EXPECT_EQ(balanced_kmeans(paths, 3, 0).distance_of.back(), 0);
  EXPECT_THROW(balanced_kmeans(paths, 4, 0), Error);
  EXPECT_THROW(balanced_kmeans(paths, 0, 0), Error);
}

// Paths that use, in each of 4 layers of 32 experts, 3 of a kind's 8 experts.
std::vector<RoutingPath> paths_of_kinds(size_t count, std::mt19937& random) {
  std::vector<RoutingPath> paths;
  for (size_t i = 0; i < count; ++i) {
    RoutingPath& made = paths.emplace_back(128);
    const int64_t kind = random() % 4;
    for (int64_t layer = 0; layer < 4; ++layer) {
      for (int choice = 0; choice < 3; ++choice) {
        made.add(32 * layer + 8 * kind + static_cast<int64_t>(random() % 8));
      }
    }
  }
  return paths;
}

int64_t experts_needed(const std::vector<RoutingPath>& paths, const std::vector<size_t>& group) {
  RoutingPath all(128);
  for (const size_t i : group) all.add(paths[i]);
  return all.used();
}

// Random paths: every path is in one cluster, clusters are of one size up to one path, the sum of
// the distances falls from iteration to iteration, and equal seeds give equal clusters. Clusters of
// four to eight need far fewer experts than groups in the order of the paths.
TEST(BalancedKmeans, ClustersAreBalancedAndNeedFewExperts) {
  std::mt19937 random(7);
  int64_t in_clusters = 0;
  int64_t in_order = 0;
  for (uint64_t round = 0; round < 300; ++round) {
    const std::vector<RoutingPath> paths = paths_of_kinds(1 + random() % 70, random);
    const size_t count = 1 + random() % paths.size();
    const PathClusters clusters = balanced_kmeans(paths, static_cast<int64_t>(count), round);
    ASSERT_EQ(clusters.cluster_of.size(), paths.size());
    size_t placed = 0;
    for (size_t c = 0; c < count; ++c) {
      const std::vector<size_t> members = clusters.members(c);
      ASSERT_GE(members.size(), paths.size() / count);
      ASSERT_LE(members.size(), (paths.size() + count - 1) / count);
      ASSERT_EQ(std::count(members.begin(), members.end(), clusters.medoids[c]), 1);
      std::vector<size_t> as_many(members.size());
      std::iota(as_many.begin(), as_many.end(), placed);
      placed += members.size();
      if (members.size() < 4 || members.size() > 8) continue;
      in_clusters += experts_needed(paths, members);
      in_order += experts_needed(paths, as_many);
    }
    ASSERT_EQ(placed, paths.size());
    const std::vector<int64_t>& sums = clusters.distance_of;
    ASSERT_LE(sums.size(), static_cast<size_t>(kMostKmeansIterations));
    for (size_t i = 1; i < sums.size(); ++i) ASSERT_LT(sums[i], sums[i - 1]);
    ASSERT_EQ(balanced_kmeans(paths, static_cast<int64_t>(count), round).cluster_of,
              clusters.cluster_of);
  }
  EXPECT_LT(in_clusters, in_order * 2 / 3);
}

}  // namespace
}  // namespace klotski
