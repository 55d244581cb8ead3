// Latent attention in its absorbed form against the plain form, which expands the latent vector of
// every position to the keys and values of each head, written here in double precision.

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "forward/layer.h"
#include "forward/testing.h"
#include "kernels/testing.h"
#include "model/tensors.h"

namespace klotski {
namespace {

constexpr int64_t kModelWidth = 20, kPrompt = 9, kTokens = 11;  // a prompt, then two single tokens
constexpr LayerId kLayer{0};

using Numbers = std::vector<double>;

ModelDescription latent_model(int64_t query_rank, bool biased) {
  LatentAttention latent;
  latent.query_heads = 3;
  latent.query_rank = query_rank;
  latent.latent_rank = 12;
  latent.plain_dims = 7;
  latent.rotated_dims = 4;
  latent.value_dim = 5;
  latent.scale = 0.35f;
  latent.norm_epsilon = 1e-4f;
  latent.input_bias = latent.output_bias = biased;
  ModelDescription model;
  model.hidden = kModelWidth;
  model.rope.rotated_dims = latent.rotated_dims;
  model.rope.interleaved = query_rank > 0;
  model.rope.attention_factor = 1.25;
  model.layers.push_back({latent, {}});
  name_all_tensors(model);
  return model;
}

// weight * in + bias, where `weight` has rows as long as `in`.
Numbers product(const std::vector<float>& weight, const Numbers& in,
                const std::vector<float>& bias = {}) {
  Numbers out(weight.size() / in.size());
  for (size_t n = 0; n < out.size(); ++n) {
    for (size_t k = 0; k < in.size(); ++k) out[n] += weight[n * in.size() + k] * in[k];
    if (!bias.empty()) out[n] += bias[n];
  }
  return out;
}

// The first numbers of a row normalised, as many as the weight has.
Numbers normed(Numbers row, const std::vector<float>& weight, double epsilon) {
  double squares = 0.0;
  for (size_t i = 0; i < weight.size(); ++i) squares += row[i] * row[i];
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(weight.size()) + epsilon);
  for (size_t i = 0; i < weight.size(); ++i) row[i] *= scale * weight[i];
  return row;
}

class PlainForm {
 public:
  PlainForm(const ModelDescription& model, const RandomAttention& weights)
      : model_(model), shape_(model.layers[0].attention.latent()), weights_(weights) {}

  // The row that attention adds for the last of some hidden rows.
  Numbers added(const std::vector<Numbers>& hidden) const {
    std::vector<Numbers> rows;
    for (const Numbers& row : hidden) {
      rows.push_back(normed(row, weights_.of(Role::attention_norm), model_.norm_epsilon));
    }
    const int64_t own = std::ssize(rows) - 1;
    Numbers attended;
    for (int64_t head = 0; head < shape_.query_heads; ++head) {
      const Numbers values = attend(rows, head, own);
      attended.insert(attended.end(), values.begin(), values.end());
    }
    return product(weights_.of(Role::attention_output), attended,
                   weights_.of(Role::attention_output_bias));
  }

 private:
  Numbers query(const Numbers& row, int64_t head, int64_t position) const {
    Numbers all;
    if (shape_.query_rank > 0) {
      const Numbers low =
          product(weights_.of(Role::query_down), row, weights_.of(Role::query_down_bias));
      all = product(weights_.of(Role::query_up),
                    normed(low, weights_.of(Role::query_down_norm), shape_.norm_epsilon));
    } else {
      all = product(weights_.of(Role::query), row);
    }
    const auto begin = all.begin() + head * shape_.query_dim();
    return rotated(Numbers(begin, begin + shape_.query_dim()), position);
  }

  // Rotates the last numbers of a head.
  Numbers rotated(Numbers head, int64_t position) const {
    const auto pairs = static_cast<size_t>(shape_.rotated_dims / 2);
    const size_t first = head.size() - 2 * pairs;
    for (size_t pair = 0; pair < pairs; ++pair) {
      const double frequency =
          std::pow(model_.rope.base, -static_cast<double>(pair) / static_cast<double>(pairs));
      const double angle = static_cast<double>(position) * frequency;
      const double cosine = std::cos(angle) * model_.rope.attention_factor;
      const double sine = std::sin(angle) * model_.rope.attention_factor;
      double& a = head[first + (model_.rope.interleaved ? 2 * pair : pair)];
      double& b = head[first + (model_.rope.interleaved ? 2 * pair + 1 : pair + pairs)];
      const double old = a;
      a = old * cosine - b * sine;
      b = b * cosine + old * sine;
    }
    return head;
  }

  // Key (plain numbers, then rotated ones) and value of a head at a position.
  struct KeyValue {
    Numbers key, value;
  };
  KeyValue expanded(const Numbers& row, int64_t head, int64_t position) const {
    Numbers kept =
        product(weights_.of(Role::latent_down), row, weights_.of(Role::latent_down_bias));
    kept = rotated(normed(kept, weights_.of(Role::latent_norm), shape_.norm_epsilon), position);
    const Numbers latent(kept.begin(), kept.begin() + shape_.latent_rank);
    const Numbers all = product(weights_.of(Role::latent_up), latent);
    const auto begin = all.begin() + head * shape_.head_rows();
    KeyValue made{Numbers(begin, begin + shape_.plain_dims),
                  Numbers(begin + shape_.plain_dims, begin + shape_.head_rows())};
    made.key.insert(made.key.end(), kept.begin() + shape_.latent_rank, kept.end());
    return made;
  }

  Numbers attend(const std::vector<Numbers>& rows, int64_t head, int64_t own) const {
    const Numbers asked = query(rows.back(), head, own);
    Numbers weighted(static_cast<size_t>(shape_.value_dim));
    double sum = 0.0;
    for (int64_t position = 0; position <= own; ++position) {
      const KeyValue seen = expanded(rows[static_cast<size_t>(position)], head, position);
      double score = 0.0;
      for (size_t i = 0; i < asked.size(); ++i) score += asked[i] * seen.key[i];
      const double share = std::exp(score * shape_.scale);
      sum += share;
      for (size_t i = 0; i < weighted.size(); ++i) weighted[i] += share * seen.value[i];
    }
    for (double& value : weighted) value /= sum;
    return weighted;
  }

  const ModelDescription& model_;
  const LatentAttention& shape_;
  const RandomAttention& weights_;
};

// A sequence whose latent vectors lie in pages of four positions.
class AbsorbedForm {
 public:
  AbsorbedForm(const Arithmetic& with, const RandomAttention& weights)
      : with_(with),
        weights_(weights),
        width_(with.model.layers[0].attention.latent().key_width()) {
    for (int64_t page = 0; page < (kTokens + kPageTokens - 1) / kPageTokens; ++page) {
      memory_.emplace_back(static_cast<size_t>(kPageTokens * width_));
    }
    for (std::vector<float>& page : memory_) {
      pages_.push_back(reinterpret_cast<std::byte*>(page.data()));
    }
  }

  // Rows that attention adds to `hidden`, the rows of the next positions.
  std::vector<float> added(const std::vector<float>& hidden) {
    const auto rows = std::ssize(hidden) / kModelWidth;
    Batch batch;
    const std::vector<TokenId> tokens(static_cast<size_t>(rows));
    batch.append(past_, tokens, kTokens, LogitsOf::none);
    std::vector<float> input = hidden;
    const Rows in{input.data(), rows, kModelWidth};
    AttentionInputs inputs =
        pre_attention(with_, in, weights_.set, kLayer, rotation_of(with_, batch));
    Buffer attended(with_.ops, rows, with_.model.layers[0].attention.output_width());
    LayerCache cache{.type = DType::F32, .page_tokens = kPageTokens};
    cache.parts.push_back(pages_);
    const AttendingSequence sequence{attended.rows(), inputs.rows(), cache, past_};
    keep(with_, std::span(&sequence, 1), kLayer);
    attention(with_, std::span(&sequence, 1), weights_.set, kLayer);
    std::vector<float> out(hidden.size(), 0.0f);
    post_attention(with_, {out.data(), rows, kModelWidth}, attended.rows(), weights_.set, kLayer);
    past_ += rows;
    return out;
  }

 private:
  static constexpr int64_t kPageTokens = 4;
  const Arithmetic& with_;
  const RandomAttention& weights_;
  int64_t width_;
  std::vector<std::vector<float>> memory_;
  std::vector<std::byte*> pages_;
  int64_t past_ = 0;
};

TEST(LatentAttention, AbsorbedIsThePlainForm) {
  for (const int64_t query_rank : {0, 6}) {
    for (const Processor* ops : {&reference_processor(), &cpu_processor()}) {
      const ModelDescription model = latent_model(query_rank, query_rank > 0);
      const RandomAttention weights(model);
      const Arithmetic with{model, *ops, Precision::f32};
      const PlainForm plain(model, weights);
      AbsorbedForm absorbed(with, weights);
      std::mt19937 random(8);
      std::normal_distribution<float> normal;
      std::vector<float> hidden(static_cast<size_t>(kTokens * kModelWidth));
      for (float& value : hidden) value = normal(random);

      std::vector<float> found;
      for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{
               {0, kPrompt}, {kPrompt, kPrompt + 1}, {kPrompt + 1, kTokens}}) {
        const std::vector<float> rows = absorbed.added(
            {hidden.begin() + begin * kModelWidth, hidden.begin() + end * kModelWidth});
        found.insert(found.end(), rows.begin(), rows.end());
      }
      std::vector<Numbers> known;
      for (int64_t row = 0; row < kTokens; ++row) {
        const auto begin = hidden.begin() + row * kModelWidth;
        known.emplace_back(begin, begin + kModelWidth);
        const Numbers expected = plain.added(known);
        for (int64_t i = 0; i < kModelWidth; ++i) {
          EXPECT_NEAR(found[static_cast<size_t>(row * kModelWidth + i)],
                      expected[static_cast<size_t>(i)], 2e-5)
              << "rank " << query_rank << " row " << row << " number " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace klotski
