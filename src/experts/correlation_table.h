#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "experts/expected_expert.h"
#include "experts/group_choices.h"
#include "experts/routing_trace.h"

namespace klotski {

// Counters a layer of a correlation table may take; 4 MiB a layer.
inline constexpr int64_t kMaxPathCounters = 1 << 20;
inline constexpr int kMaxPathLength = 4;
// Tokens after which the counts of a layer are halved, so that recent text weighs more. An expert
// is counted at most once a token and path, so no count passes twice this number.
inline constexpr int64_t kTokensPerHalving = 65536;

// How often the tokens that took a path went on to each expert of one routed layer. A path is the
// choice of one expert in each of the up to l routed layers before.
class PathCounts {
 public:
  // `before`: the layers of the path, oldest first.
  PathCounts(RoutedLayer layer, std::span<const RoutedLayer> before);

  const RoutedLayer& layer() const { return layer_; }
  size_t path_length() const { return radices_.size(); }

  // A number for a path, in mixed radix.
  uint64_t path_number(std::span<const ExpertId> path) const;
  std::vector<ExpertId> path(uint64_t number) const;

  // The counts of a path, [expert], or an empty span for a path that has none.
  std::span<const uint32_t> counts(uint64_t path) const;
  // The counts of a path to change, made where there is room; else empty, and the path stays
  // unknown.
  std::span<uint32_t> counts_to_change(uint64_t path);
  std::vector<uint64_t> known_paths() const;  // rising

  void halve();

 private:
  RoutedLayer layer_;
  std::vector<uint64_t> radices_;  // experts of the layers of the path
  // Whether all paths fit: then the number of a path is the index of its row. Otherwise rows are
  // given out as paths come up, until kMaxPathCounters are used.
  bool all_fit_ = false;
  int64_t max_rows_ = 0;
  std::unordered_map<uint64_t, size_t> row_of_;  // never iterated: its order is not ours
  std::vector<uint64_t> path_of_row_;
  std::vector<uint32_t> rows_;  // [row][expert]
};

// Klotski's expert correlation table (section 6.2 of the paper): foretells the experts that most
// tokens of a group will choose in a layer from their choices in the `path_length` routed layers
// before. With a top-k gate a token takes k paths a layer, and each is counted. Layers with fewer
// layers before them use those there are; the first uses popularity alone. Answers depend on the
// observed choices only.
class CorrelationTable {
 public:
  explicit CorrelationTable(RoutingTraceShape shape, int path_length = 1);

  const RoutingTraceShape& shape() const { return shape_; }
  int path_length() const { return path_length_; }

  // Counts the group's choices in this layer; the group must know the layers up to it.
  void observe_layer(size_t routed_layer, const GroupChoices& group);

  // The `count` experts of the layer most likely to be chosen, likeliest first, ties to the lower
  // expert; the group must know the layers before. Each token's paths are looked up, turned into
  // shares and added up; a path never seen counts with the layer's popularity. Fewer than `count`
  // where fewer were ever seen; empty where nothing was observed, so that nothing is fetched.
  std::vector<ExpectedExpert> hot_experts(size_t routed_layer, const GroupChoices& group,
                                          int64_t count) const;

  // The probability of each expert of the layer that the group's token chooses it, [expert], by the
  // shares of hot_experts() times top_k, at most 1. A layer that comes later than the next one is
  // predicted by its popularity. All zero where nothing was observed.
  std::vector<double> probabilities(size_t routed_layer, const GroupChoices& group,
                                    int64_t token) const;

  // How often each expert of the layer was chosen, [expert]; recent choices weigh more.
  std::span<const uint32_t> popularity(size_t routed_layer) const {
    return layers_[routed_layer].popularity;
  }

  // Writes a JSON file, under another name first, so that a half-written table is never found:
  //   {"version": 1, "model": "...", "path_length": 1, "layers": [
  //     {"layer": 0, "experts": 4, "top_k": 2, "tokens": 7, "popularity": [3, 4, 0, 7],
  //      "paths": [{"path": [2], "counts": [1, 0, 0, 3]}, ...]}, ...]}
  // "tokens" counts towards the next halving; paths without counts are left out.
  void save(const std::filesystem::path& path) const;
  // Throws where the file is damaged or not about `shape` (the model's name may differ).
  static CorrelationTable load(const std::filesystem::path& path, const RoutingTraceShape& shape);

 private:
  struct Layer {
    PathCounts paths;
    std::vector<uint32_t> popularity;  // [expert]
    int64_t tokens = 0;                // since the last halving
  };
  friend class CorrelationTableFile;

  RoutingTraceShape shape_;
  int path_length_;
  std::vector<Layer> layers_;
};

}  // namespace klotski
