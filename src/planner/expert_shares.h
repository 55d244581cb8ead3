#pragma once

#include <cstdint>
#include <vector>

#include "model/description.h"

namespace klotski {

// How popular the experts of each layer are: the share of all choices that goes to each.
class ExpertShares {
 public:
  // Equal shares for all experts of a layer.
  explicit ExpertShares(const ModelDescription& model);
  // Shares by layer and expert, as many as the model has; scaled so that each layer's sum is one.
  ExpertShares(const ModelDescription& model, std::vector<std::vector<double>> shares);

  const std::vector<double>& of(LayerId layer) const {
    return shares_[static_cast<size_t>(layer.value)];
  }
  const std::vector<std::vector<double>>& all() const { return shares_; }

  // Rows that choose each expert when `rows` rows of a micro-batch each choose `top_k`: zero for an
  // expert that nobody chose, for the others the expected number given that somebody chose it. On
  // average each expert is chosen as often and by as many rows as at random; the number of chosen
  // experts hardly varies. Depends on layer, micro-batch and pass alone.
  std::vector<double> rows(LayerId layer, int64_t micro_batch, int64_t pass, double rows,
                           int64_t top_k) const;

 private:
  std::vector<std::vector<double>> shares_;
};

}  // namespace klotski
