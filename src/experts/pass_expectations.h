#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "experts/eviction.h"

namespace klotski {

// The part of a pass that is still to come, as an eviction rule knows it: which layer runs, and how
// likely each expert of a coming layer is needed before the pass ends. Layers run in a cycle; a
// layer that begins before or at the running one begins a new pass.
class PassExpectations {
 public:
  explicit PassExpectations(int64_t layer_count);

  // The layer begins to run. Expectations of layers that are over are forgotten.
  void now_at(LayerId layer);
  // The probability of each expert of the layer in this pass, [expert].
  void expect(LayerId layer, std::span<const double> probability);
  // The probability of each expert of the layer in the next pass, [expert]; told again each pass.
  void expect_in_next_pass(LayerId layer, std::span<const double> probability);
  // The expert was used: in its layer's present run it is not needed any more.
  void used(ExpertKey key);

  int64_t layer_count() const { return static_cast<int64_t>(layers_.size()); }
  // Passes begun so far.
  int64_t pass() const { return pass_; }
  // Layers from the running one on: 0 is the running layer, negative layers are over in this pass.
  int64_t ahead(LayerId layer) const { return layer.value - running_; }
  // Whether expect() has told about the layer's present or coming run in this pass.
  bool told(LayerId layer) const { return !of(layer).probability.empty(); }
  // As expect() told, 0 once the expert was used.
  double probability(ExpertKey key) const;
  // As expect_in_next_pass() told last; nothing where it did not.
  std::optional<double> next_pass_probability(ExpertKey key) const;
  // As many of the layer's experts as are expected in all, likeliest first, are predicted active.
  bool predicted_active(ExpertKey key) const;
  // Whether the expert was predicted active, until its layer's gates left it out: told again while
  // the layer runs, its probability was 0.
  bool mispredicted(ExpertKey key) const;
  // Whether the expert was used since its layer ran last.
  bool used_in_this_pass(ExpertKey key) const;

  // See EvictionRule::order_version().
  int64_t order_version(LayerId layer) const { return of(layer).version; }

 private:
  struct Layer {
    std::vector<double> probability;  // [expert]; empty: not told
    double least_active = 0.0;        // probability from which on an expert is predicted active
    std::vector<double> next_pass;    // [expert]; empty: not told
    std::vector<bool> mispredicted;   // [expert]; empty: none
    std::vector<int64_t> last_pass;   // [expert]: pass of the last use; 0: never
    int64_t version = 0;
  };

  const Layer& of(LayerId layer) const { return layers_.at(static_cast<size_t>(layer.value)); }
  Layer& of(LayerId layer) { return layers_.at(static_cast<size_t>(layer.value)); }

  std::vector<Layer> layers_;
  int64_t running_ = 0;
  int64_t pass_ = 0;
};

}  // namespace klotski
