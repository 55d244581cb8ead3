#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "model/description.h"
#include "model/tensors.h"
#include "synth/popularity.h"
#include "tensor/dtype.h"

namespace klotski {

// The values of a random model, chosen so that activations keep a sane size through any number of
// layers: norms are 1, matrices keep the size of their inputs, and the layers' sums in the residual
// stream are small compared with the embedding.
//
// Routers are skewed as asked. Every embedding row has a small part in common, a vector of signs
// that the residual stream and the norms preserve; a popular expert's router row contains that
// vector, any other row is orthogonal to it. So are the rows of the output projection: no token is
// likelier than others for the part that all positions have in common.
class TensorFill {
 public:
  // The model must outlive the fill.
  TensorFill(const ModelDescription& model, uint64_t seed, double share);

  // Elements of a tensor, in a type of F32, F16 and BF16.
  struct Elements {
    DType dtype;
    uint64_t first;
    std::span<std::byte> out;  // has room for whole elements
  };
  // Makes elements of a tensor. Thread-safe.
  void fill(const TensorSpec& spec, LayerId layer, Elements elements) const;

  // The key of a tensor's noise.
  uint64_t key(const TensorSpec& spec) const;
  // Standard deviation of the independent part of a tensor's values.
  double deviation(const TensorSpec& spec) const;

 private:
  // How the values of one tensor are made.
  struct Recipe {
    Role role;
    LayerId layer;
    uint64_t key;  // key of its noise
    double deviation;
  };
  // Makes elements from `first` on or, where the common vector matters, the row that begins there.
  void make(const Recipe& recipe, uint64_t first, std::span<float> values) const;
  void make_row_off_common(const Recipe& recipe, uint64_t first, std::span<float> row) const;
  double router_bias(LayerId layer, uint64_t expert) const;

  const ModelDescription& model_;
  uint64_t seed_;
  std::vector<float> common_;                                     // [hidden] of signs
  std::map<std::pair<int64_t, int64_t>, Popularity> popularity_;  // by experts and top_k
};

}  // namespace klotski
