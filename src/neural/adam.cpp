#include "neural/adam.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace klotski::neural {

namespace {

// Factors of one step, the same for every element of a parameter.
struct StepFactors {
  float first_decay = 0;
  float second_decay = 0;
  float step_size = 0;  // learning rate over the bias of the first moment
  float root_bias = 0;  // 1 / square root of the bias of the second moment
  float epsilon = 0;
  float keep = 0;  // share of the value that weight decay leaves
};

struct ParameterElements {
  float* value;
  float* gradient;
  float* first;
  float* second;
};

void step_elements(const ParameterElements& of, const StepFactors& by, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const float gradient = of.gradient[i];
    of.first[i] = by.first_decay * of.first[i] + (1 - by.first_decay) * gradient;
    of.second[i] = by.second_decay * of.second[i] + (1 - by.second_decay) * gradient * gradient;
    of.value[i] = by.keep * of.value[i] - by.step_size * of.first[i] /
                                              (std::sqrt(of.second[i]) * by.root_bias + by.epsilon);
    of.gradient[i] = 0;
  }
}

}  // namespace

Adam::Adam(std::vector<Parameter*> parameters, const AdamOptions& options)
    : parameters_(std::move(parameters)), options_(options) {
  for (Parameter* one : parameters_) {
    one->gradient = Matrix(one->value.rows, one->value.columns);
    first_.emplace_back(one->value.rows, one->value.columns);
    second_.emplace_back(one->value.rows, one->value.columns);
  }
}

std::vector<Matrix*> Adam::moments() {
  std::vector<Matrix*> all;
  for (Matrix& one : first_) all.push_back(&one);
  for (Matrix& one : second_) all.push_back(&one);
  return all;
}

std::vector<const Matrix*> Adam::moments() const {
  std::vector<const Matrix*> all;
  for (const Matrix& one : first_) all.push_back(&one);
  for (const Matrix& one : second_) all.push_back(&one);
  return all;
}

void Adam::step(double scale, ThreadPool* pool) {
  ++steps_;
  const double rate = options_.learning_rate * scale;
  const auto steps = static_cast<double>(steps_);
  StepFactors factors{
      .first_decay = static_cast<float>(options_.first_decay),
      .second_decay = static_cast<float>(options_.second_decay),
      .step_size = static_cast<float>(rate / (1 - std::pow(options_.first_decay, steps))),
      .root_bias = static_cast<float>(1 / std::sqrt(1 - std::pow(options_.second_decay, steps))),
      .epsilon = static_cast<float>(options_.epsilon)};
  for (size_t p = 0; p < parameters_.size(); ++p) {
    Parameter& parameter = *parameters_[p];
    factors.keep =
        parameter.value.rows == 1 ? 1.0f : static_cast<float>(1 - rate * options_.weight_decay);
    const ParameterElements elements{parameter.value.values.data(),
                                     parameter.gradient.values.data(), first_[p].values.data(),
                                     second_[p].values.data()};
    constexpr int64_t kLeastShared = 1 << 14;  // elements
    const int64_t count = std::ssize(parameter.value.values);
    share_out(count < kLeastShared ? nullptr : pool, count,
              [&](int64_t begin, int64_t end) { step_elements(elements, factors, begin, end); });
  }
}

double cosine_scale(int64_t step, int64_t warm_up, int64_t total) {
  if (step < warm_up) return static_cast<double>(step + 1) / static_cast<double>(warm_up);
  const double part = static_cast<double>(step - warm_up) /
                      static_cast<double>(std::max<int64_t>(1, total - warm_up));
  return 0.5 * (1 + std::cos(std::numbers::pi * std::min(1.0, part)));
}

}  // namespace klotski::neural
