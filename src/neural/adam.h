#pragma once

#include <cstdint>
#include <vector>

#include "neural/parameter.h"

namespace klotski::neural {

struct AdamOptions {
  double learning_rate = 1e-3;
  double weight_decay = 0.01;  // decoupled: taken from the value, not from the gradient (AdamW)
  double first_decay = 0.9;
  double second_decay = 0.99;
  double epsilon = 1e-8;
};

// Adam with decoupled weight decay, which leaves parameters of one row alone: biases and the gains
// of normalisations. The constructor makes the parameters' gradients, all zero.
class Adam {
 public:
  Adam(std::vector<Parameter*> parameters, const AdamOptions& options);

  // One step along the gradients, which are cleared. `scale` multiplies the learning rate.
  void step(double scale, ThreadPool* pool = nullptr);

  int64_t steps() const { return steps_; }
  // State that a resumed training needs besides the parameters: the number of steps, and the first
  // moments of all parameters in their order, then the second ones.
  void set_steps(int64_t steps) { steps_ = steps; }
  std::vector<Matrix*> moments();
  std::vector<const Matrix*> moments() const;

 private:
  std::vector<Parameter*> parameters_;
  AdamOptions options_;
  std::vector<Matrix> first_;
  std::vector<Matrix> second_;
  int64_t steps_ = 0;
};

// Factor of the learning rate at a step: rises over `warm_up` steps, then falls to zero at `total`
// along a cosine.
double cosine_scale(int64_t step, int64_t warm_up, int64_t total);

}  // namespace klotski::neural
