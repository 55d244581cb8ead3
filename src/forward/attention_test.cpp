// Grouped heads whose values are narrower than their keys, against heads of one width whose values
// are filled up with zeros: equal numbers, bit for bit.

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "forward/layer.h"
#include "kernels/testing.h"
#include "model/tensors.h"

namespace klotski {
namespace {

constexpr int64_t kHidden = 6, kQueryHeads = 4, kKvHeads = 2, kDim = 8, kNarrow = 3, kRows = 5;

ModelDescription model_with(std::optional<int64_t> value_dim) {
  GroupedHeads heads;
  heads.query_heads = kQueryHeads;
  heads.kv_heads = kKvHeads;
  heads.head_dim = kDim;
  heads.value_dim = value_dim;
  heads.scale = 0.4f;
  ModelDescription model;
  model.hidden = kHidden;
  model.rope.rotated_dims = kDim;
  model.layers.push_back({heads, {}});
  for (const Role role :
       {Role::attention_norm, Role::query, Role::key, Role::value, Role::attention_output}) {
    model.tensor_names.push_back({role, "layer {layer}"});
  }
  return model;
}

std::vector<float> random_matrix(int64_t rows, int64_t width, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(rows * width));
  for (float& value : values) value = normal(random);
  return values;
}

// The output rows of a prompt's attention; `value` are the weights of its values.
std::vector<float> attend(const ModelDescription& model, std::vector<float> value) {
  const Arithmetic with{model, reference_processor(), Precision::f32};
  std::vector<float> norm(kHidden, 1.0f);
  std::vector<float> query = random_matrix(kQueryHeads * kDim, kHidden, 1);
  std::vector<float> key = random_matrix(kKvHeads * kDim, kHidden, 2);
  std::vector<float> hidden = random_matrix(kRows, kHidden, 3);
  WeightSet weights;
  const auto set = [&](Role role, std::vector<float>& values, Shape shape) {
    weights.set(role, {reinterpret_cast<std::byte*>(values.data()), DType::F32, std::move(shape)});
  };
  set(Role::attention_norm, norm, {kHidden});
  set(Role::query, query, {kQueryHeads * kDim, kHidden});
  set(Role::key, key, {kKvHeads * kDim, kHidden});
  set(Role::value, value, {std::ssize(value) / kHidden, kHidden});

  Batch batch;
  const std::vector<TokenId> tokens(kRows);
  batch.append(0, tokens, kRows, LogitsOf::none);
  const LayerId layer(0);
  const Attention& shape = model.layer(layer).attention;
  AttentionInputs inputs = pre_attention(with, {hidden.data(), kRows, kHidden}, weights, layer,
                                         rotation_of(with, batch));
  std::vector<std::vector<float>> parts;
  std::vector<std::byte*> pages;
  for (const RowPart& part : shape.cache().parts) {
    parts.emplace_back(static_cast<size_t>(kRows * part.width));
    pages.push_back(reinterpret_cast<std::byte*>(parts.back().data()));
  }
  LayerCache cache{.type = DType::F32, .page_tokens = kRows};
  for (std::byte* const& page : pages) cache.parts.push_back(std::span(&page, 1));
  Buffer output(with.ops, kRows, shape.output_width());
  const AttendingSequence sequence{output.rows(), inputs.rows(), cache, 0};
  keep(with, std::span(&sequence, 1), layer);
  attention(with, std::span(&sequence, 1), weights, layer);
  return output.download();
}

TEST(ForwardAttention, ValuesMayBeNarrowerThanKeys) {
  std::vector<float> wide = random_matrix(kKvHeads * kDim, kHidden, 4);
  std::vector<float> narrow;
  for (int64_t row = 0; row < kKvHeads * kDim; ++row) {
    const auto begin = wide.begin() + row * kHidden;
    if (row % kDim < kNarrow) {
      narrow.insert(narrow.end(), begin, begin + kHidden);
    } else {
      std::fill_n(begin, kHidden, 0.0f);
    }
  }
  const std::vector<float> expected = attend(model_with({}), wide);
  const std::vector<float> found = attend(model_with(kNarrow), narrow);
  ASSERT_EQ(found.size(), static_cast<size_t>(kRows * kQueryHeads * kNarrow));
  for (size_t i = 0; i < found.size(); ++i) {
    const size_t head = i / kNarrow;
    EXPECT_EQ(found[i], expected[head * kDim + i % kNarrow]) << "element " << i;
  }
}

TEST(ForwardAttention, TensorsHaveTheWidthsOfTheirHeads) {
  for (const TensorSpec& spec : attention_tensors(model_with(kNarrow), LayerId(0))) {
    if (spec.role == Role::query) {
      EXPECT_EQ(spec.shape, (Shape{kQueryHeads * kDim, kHidden}));
    }
    if (spec.role == Role::key) {
      EXPECT_EQ(spec.shape, (Shape{kKvHeads * kDim, kHidden}));
    }
    if (spec.role == Role::value) {
      EXPECT_EQ(spec.shape, (Shape{kKvHeads * kNarrow, kHidden}));
    }
    if (spec.role == Role::attention_output) {
      EXPECT_EQ(spec.shape, (Shape{kHidden, kQueryHeads * kNarrow}));
    }
  }
}

}  // namespace
}  // namespace klotski
