#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "experts/routing_path.h"

namespace klotski {

// Paths in clusters of one size, up to one path.
struct PathClusters {
  std::vector<size_t> cluster_of;    // [path]
  std::vector<size_t> medoids;       // [cluster]: the path in its centre
  std::vector<int64_t> distance_of;  // [iteration]: distances from paths to their medoids, summed

  std::vector<size_t> members(size_t cluster) const;  // paths, in their order
};

// The balanced k-means of ExpertFlow (section 3.3.3) with the Hamming distance of paths. It begins
// with centroids at random, here by `seed`. An iteration assigns every path to the nearest centroid
// whose cluster is not full, nearest pairs first, then exchanges the clusters of two paths as long
// as that brings them nearer; then the path with the smallest mean distance to the others of its
// cluster becomes the centroid. It ends when the sum of the distances does not fall, and at
// kMostKmeansIterations. The sum never grows from an iteration to the next.
//
// `clusters` is at least one and at most the number of paths.
PathClusters balanced_kmeans(std::span<const RoutingPath> paths, int64_t clusters, uint64_t seed);

inline constexpr int kMostKmeansIterations = 16;

}  // namespace klotski
