#include "experts/balanced_kmeans.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/noise.h"

namespace klotski {

namespace {

class BalancedKmeans {
 public:
  BalancedKmeans(std::span<const RoutingPath> paths, size_t clusters)
      : paths_(paths.size()), clusters_(clusters), distance_(paths_ * paths_) {
    for (size_t a = 0; a < paths_; ++a) {
      for (size_t b = 0; b < a; ++b) {
        distance_[a * paths_ + b] = distance_[b * paths_ + a] =
            hamming_distance(paths[a], paths[b]);
      }
    }
  }

  PathClusters run(uint64_t seed) const {
    PathClusters best{.cluster_of = {}, .medoids = random_medoids(seed), .distance_of = {}};
    for (int i = 0; i < kMostKmeansIterations; ++i) {
      PathClusters next = best;
      assign(next);
      exchange(next);
      find_medoids(next);
      const int64_t sum = sum_of_distances(next);
      if (i > 0 && sum >= best.distance_of.back()) break;
      next.distance_of.push_back(sum);
      best = std::move(next);
    }
    return best;
  }

 private:
  int64_t distance(size_t a, size_t b) const { return distance_[a * paths_ + b]; }

  std::vector<size_t> random_medoids(uint64_t seed) const {
    std::vector<size_t> order(paths_);
    std::iota(order.begin(), order.end(), size_t{0});
    const uint64_t key = noise_key(seed, "medoids");
    for (size_t i = 0; i < clusters_; ++i) {
      std::swap(order[i], order[i + noise_bits(key, i) % (paths_ - i)]);
    }
    order.resize(clusters_);
    return order;
  }

  void assign(PathClusters& into) const {
    struct Pair {
      int64_t distance;
      size_t path;
      size_t cluster;
    };
    std::vector<Pair> pairs;
    for (size_t path = 0; path < paths_; ++path) {
      for (size_t c = 0; c < clusters_; ++c) {
        pairs.push_back({distance(path, into.medoids[c]), path, c});
      }
    }
    std::stable_sort(pairs.begin(), pairs.end(),
                     [](const Pair& a, const Pair& b) { return a.distance < b.distance; });
    into.cluster_of.assign(paths_, clusters_);  // none
    std::vector<size_t> sizes(clusters_);
    size_t larger = paths_ % clusters_;  // clusters that may have one path more
    for (const Pair& pair : pairs) {
      if (into.cluster_of[pair.path] != clusters_) continue;
      size_t& size = sizes[pair.cluster];
      if (size > paths_ / clusters_ || (size == paths_ / clusters_ && larger == 0)) continue;
      if (size == paths_ / clusters_) --larger;
      ++size;
      into.cluster_of[pair.path] = pair.cluster;
    }
  }

  void exchange(PathClusters& in) const {
    const auto to_medoid = [&](size_t path, size_t cluster) {
      return distance(path, in.medoids[cluster]);
    };
    for (bool exchanged = true; exchanged;) {
      exchanged = false;
      for (size_t a = 0; a < paths_; ++a) {
        for (size_t b = 0; b < a; ++b) {
          size_t& of_a = in.cluster_of[a];
          size_t& of_b = in.cluster_of[b];
          if (to_medoid(a, of_b) + to_medoid(b, of_a) >= to_medoid(a, of_a) + to_medoid(b, of_b)) {
            continue;
          }
          std::swap(of_a, of_b);
          exchanged = true;
        }
      }
    }
  }

  void find_medoids(PathClusters& in) const {
    for (size_t c = 0; c < clusters_; ++c) {
      const std::vector<size_t> members = in.members(c);
      const auto to_others = [&](size_t path) {
        int64_t sum = 0;
        for (const size_t other : members) sum += distance(path, other);
        return sum;
      };
      in.medoids[c] = *std::min_element(members.begin(), members.end(), [&](size_t a, size_t b) {
        return to_others(a) < to_others(b);
      });
    }
  }

  int64_t sum_of_distances(const PathClusters& of) const {
    int64_t sum = 0;
    for (size_t path = 0; path < paths_; ++path) {
      sum += distance(path, of.medoids[of.cluster_of[path]]);
    }
    return sum;
  }

  size_t paths_;
  size_t clusters_;
  std::vector<int64_t> distance_;  // [path][path]
};

}  // namespace

std::vector<size_t> PathClusters::members(size_t cluster) const {
  std::vector<size_t> paths;
  for (size_t path = 0; path < cluster_of.size(); ++path) {
    if (cluster_of[path] == cluster) paths.push_back(path);
  }
  return paths;
}

PathClusters balanced_kmeans(std::span<const RoutingPath> paths, int64_t clusters, uint64_t seed) {
  if (clusters < 1 || clusters > std::ssize(paths)) {
    fail(ErrorKind::internal, "{} routing paths cannot be put in {} clusters", paths.size(),
         clusters);
  }
  return BalancedKmeans(paths, static_cast<size_t>(clusters)).run(seed);
}

}  // namespace klotski
