// A layer of a gated delta net against its formulas in double precision, written token by token,
// and the state that it keeps between steps.

#include "forward/gated_delta_net.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "forward/testing.h"
#include "kernels/testing.h"
#include "model/tensors.h"

namespace klotski {
namespace {

constexpr int64_t kDeltaWidth = 10, kDeltaRows = 9;
constexpr LayerId kDeltaLayer{0};

using Doubles = std::vector<double>;

ModelDescription delta_model() {
  GatedDeltaNet net;
  net.key_heads = 2;
  net.value_heads = 6;
  net.key_dim = 5;
  net.value_dim = 3;
  net.taps = 4;
  ModelDescription model;
  model.hidden = kDeltaWidth;
  model.norm_epsilon = 1e-4f;
  model.norm_offset = 1.0f;
  model.layers.push_back({net, {}});
  name_all_tensors(model);
  return model;
}

struct DeltaLayerWeights : RandomAttention {
  using RandomAttention::RandomAttention;

  // Row `row` of a matrix times a vector.
  double product(Role role, int64_t row, const Doubles& in) const {
    double sum = 0.0;
    for (size_t i = 0; i < in.size(); ++i) {
      sum += of(role)[static_cast<size_t>(row) * in.size() + i] * in[i];
    }
    return sum;
  }
};

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// The layer in double precision: what it adds to its input, row by row.
class DeltaFormulas {
 public:
  DeltaFormulas(const ModelDescription& model, const DeltaLayerWeights& weights)
      : model_(model), net_(model.layers[0].attention.delta_net()), weights_(weights) {}

  Doubles row(const float* hidden) {
    const Doubles in = normed(hidden);
    inputs_.push_back(mixed(in));
    Doubles joined;
    for (int64_t head = 0; head < net_.value_heads; ++head) {
      const Doubles result = head_result(in, head);
      joined.insert(joined.end(), result.begin(), result.end());
    }
    Doubles out;
    for (int64_t i = 0; i < kDeltaWidth; ++i) {
      out.push_back(weights_.product(Role::delta_output, i, joined));
    }
    return out;
  }

 private:
  static double root_mean_square(const Doubles& row, double epsilon) {
    double squares = 0.0;
    for (const double value : row) squares += value * value;
    return std::sqrt(squares / static_cast<double>(row.size()) + epsilon);
  }
  Doubles normed(const float* hidden) const {
    Doubles row(hidden, hidden + kDeltaWidth);
    const double scale = root_mean_square(row, model_.norm_epsilon);
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = row[i] / scale * (1.0 + weights_.of(Role::attention_norm)[i]);
    }
    return row;
  }
  // A key head has its queries, keys, values and gates one after the other.
  int64_t head_rows() const { return net_.projection_rows() / net_.key_heads; }
  int64_t values_of_key_head() const { return net_.value_width() / net_.key_heads; }
  int64_t value_heads_of_key_head() const { return net_.value_heads / net_.key_heads; }

  // Channels of the convolution: queries, keys, values of all heads.
  Doubles mixed(const Doubles& in) const {
    Doubles channels;
    const auto add = [&](int64_t first, int64_t count) {
      for (int64_t head = 0; head < net_.key_heads; ++head) {
        for (int64_t i = 0; i < count; ++i) {
          channels.push_back(
              weights_.product(Role::delta_input, head * head_rows() + first + i, in));
        }
      }
    };
    add(0, net_.key_dim);
    add(net_.key_dim, net_.key_dim);
    add(2 * net_.key_dim, values_of_key_head());
    return channels;
  }
  double convolved(int64_t channel) const {
    double sum = 0.0;
    const auto last = static_cast<int64_t>(inputs_.size()) - 1;
    for (int64_t tap = 0; tap < net_.taps; ++tap) {
      const int64_t at = last - net_.taps + 1 + tap;
      if (at < 0) continue;
      sum += weights_.of(Role::delta_convolution)[static_cast<size_t>(channel * net_.taps + tap)] *
             inputs_[static_cast<size_t>(at)][static_cast<size_t>(channel)];
    }
    return sum * sigmoid(sum);
  }
  Doubles unit_vector(int64_t first) const {
    Doubles vector;
    double squares = 1e-6;
    for (int64_t i = 0; i < net_.key_dim; ++i) {
      vector.push_back(convolved(first + i));
      squares += vector.back() * vector.back();
    }
    for (double& value : vector) value /= std::sqrt(squares);
    return vector;
  }

  Doubles head_result(const Doubles& in, int64_t head) {
    const int64_t shared = value_heads_of_key_head();
    const int64_t key_head = head / shared;
    const Doubles query = unit_vector(key_head * net_.key_dim);
    const Doubles key = unit_vector(net_.key_width() + key_head * net_.key_dim);
    const int64_t rate_row = key_head * 2 * shared + head % shared;
    const double update = sigmoid(weights_.product(Role::delta_rates, rate_row, in));
    const double step = weights_.product(Role::delta_rates, rate_row + shared, in) +
                        weights_.of(Role::delta_step_bias)[static_cast<size_t>(head)];
    const double rate = std::exp(weights_.of(Role::delta_log_decay)[static_cast<size_t>(head)]);
    const double decay = std::exp(-rate * std::log1p(std::exp(step)));
    Doubles results;
    for (int64_t column = 0; column < net_.value_dim; ++column) {
      Doubles& own = states_[static_cast<size_t>(head * net_.value_dim + column)];
      own.resize(key.size());
      const double value = convolved(2 * net_.key_width() + head * net_.value_dim + column);
      double along = 0.0;
      for (size_t i = 0; i < key.size(); ++i) along += decay * own[i] * key[i];
      double result = 0.0;
      for (size_t i = 0; i < key.size(); ++i) {
        own[i] = decay * own[i] + key[i] * update * (value - along);
        result += own[i] * query[i] / std::sqrt(static_cast<double>(net_.key_dim));
      }
      results.push_back(result);
    }
    const double size = root_mean_square(results, model_.norm_epsilon);
    const int64_t gates = key_head * head_rows() + 2 * net_.key_dim + values_of_key_head() +
                          head % shared * net_.value_dim;
    for (size_t i = 0; i < results.size(); ++i) {
      const double gate = weights_.product(Role::delta_input, gates + static_cast<int64_t>(i), in);
      results[i] = results[i] / size * weights_.of(Role::delta_norm)[i] * gate * sigmoid(gate);
    }
    return results;
  }

  const ModelDescription& model_;
  const GatedDeltaNet& net_;
  const DeltaLayerWeights& weights_;
  std::vector<Doubles> inputs_;          // convolution's inputs of the tokens so far
  std::array<Doubles, 18> states_ = {};  // a column of a head's state each
};

// Runs rows through the layer in steps; each step that is not committed is computed twice.
class DeltaRun {
 public:
  DeltaRun(const ModelDescription& model, const DeltaLayerWeights& weights, const Processor& ops,
           Precision precision)
      : with_{model, ops, precision},
        weights_(weights),
        state_(model.layers[0].attention.cache().state_bytes),
        next_(state_.size()) {}

  std::vector<float> step(std::vector<float> hidden, bool commits) {
    const auto rows = static_cast<int64_t>(hidden.size()) / kDeltaWidth;
    const std::vector<float> before = hidden;
    Batch batch;
    const std::vector<TokenId> tokens(static_cast<size_t>(rows));
    batch.append(0, tokens, rows, LogitsOf::none);
    const Rows all{hidden.data(), rows, kDeltaWidth};
    AttentionInputs inputs =
        pre_attention(with_, all, weights_.set, kDeltaLayer, rotation_of(with_, batch));
    Buffer attended(with_.ops, rows, with_.model.layers[0].attention.output_width());
    LayerCache cache;
    if (begun_) cache.state = state_;
    cache.next_state = next_;
    const AttendingSequence one{attended.rows(), inputs.rows(), cache, 0};
    keep(with_, std::span(&one, 1), kDeltaLayer);
    attention(with_, std::span(&one, 1), weights_.set, kDeltaLayer);
    post_attention(with_, all, attended.rows(), weights_.set, kDeltaLayer);
    for (size_t i = 0; i < hidden.size(); ++i) hidden[i] -= before[i];
    if (commits) {
      std::swap(state_, next_);
      begun_ = true;
    }
    return hidden;
  }

 private:
  Arithmetic with_;
  const DeltaLayerWeights& weights_;
  std::vector<std::byte> state_;
  std::vector<std::byte> next_;
  bool begun_ = false;
};

std::vector<float> hidden_rows() {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> rows(kDeltaRows * kDeltaWidth);
  for (float& value : rows) value = normal(random);
  return rows;
}

TEST(GatedDeltaNetLayer, IsItsFormulas) {
  const ModelDescription model = delta_model();
  const DeltaLayerWeights weights(model);
  const std::vector<float> hidden = hidden_rows();
  for (const Processor* ops : {&reference_processor(), &cpu_processor()}) {
    DeltaRun run(model, weights, *ops, Precision::f32);
    const std::vector<float> found = run.step(hidden, true);
    DeltaFormulas formulas(model, weights);
    for (int64_t row = 0; row < kDeltaRows; ++row) {
      const Doubles expected = formulas.row(hidden.data() + row * kDeltaWidth);
      for (int64_t i = 0; i < kDeltaWidth; ++i) {
        EXPECT_NEAR(found[static_cast<size_t>(row * kDeltaWidth + i)],
                    expected[static_cast<size_t>(i)], 2e-5)
            << "row " << row;
      }
    }
  }
}

// Steps of several sizes with steps that are rolled back between them.
TEST(GatedDeltaNetLayer, StepsThatAreNotCommittedLeaveNothing) {
  const ModelDescription model = delta_model();
  const DeltaLayerWeights weights(model);
  const std::vector<float> hidden = hidden_rows();
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    DeltaRun whole(model, weights, cpu_processor(), precision);
    const std::vector<float> expected = whole.step(hidden, true);
    DeltaRun pieces(model, weights, cpu_processor(), precision);
    std::vector<float> found;
    for (const auto& [begin, end] : {std::pair{0, 2}, std::pair{2, 3}, std::pair{3, 9}}) {
      const std::vector<float> rows(hidden.begin() + begin * kDeltaWidth,
                                    hidden.begin() + end * kDeltaWidth);
      pieces.step(hidden, false);
      const std::vector<float> first = pieces.step(rows, false);
      const std::vector<float> again = pieces.step(rows, true);
      EXPECT_EQ(first, again);
      found.insert(found.end(), again.begin(), again.end());
    }
    EXPECT_EQ(found, expected);
  }
}

}  // namespace
}  // namespace klotski
