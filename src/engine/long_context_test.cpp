// A context of 8192 positions of latent attention, with the cache in memory, in a spill file and in
// one piece: attention gives the same bits.

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "engine/testing/models.h"
#include "forward/layer.h"
#include "kv/testing.h"
#include "kv/transaction.h"
#include "model/tensors.h"

namespace klotski {
namespace {

constexpr int64_t kPositions = 8192;
constexpr int64_t kDecoded = 3;  // tokens that attend; those before them only fill the cache

std::vector<float> normal_floats(int64_t count, float deviation, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// Random weights of the attention of every layer.
class RandomAttention {
 public:
  explicit RandomAttention(const ModelDescription& model) {
    for (int64_t layer = 0; layer < model.layer_count(); ++layer) {
      WeightSet& set = sets_.emplace_back();
      for (const TensorSpec& spec : attention_tensors(model, LayerId(layer))) {
        int64_t count = 1;
        for (const int64_t size : spec.shape) count *= size;
        values_.push_back(normal_floats(count, 0.2f, static_cast<unsigned>(values_.size())));
        set.set(spec.role, {reinterpret_cast<const std::byte*>(values_.back().data()), DType::F32,
                            spec.shape});
      }
    }
  }
  const WeightSet& of(int64_t layer) const { return sets_[static_cast<size_t>(layer)]; }

 private:
  std::vector<std::vector<float>> values_;
  std::vector<WeightSet> sets_;
};

class LongContext : public ::testing::TestWithParam<Precision> {
 protected:
  LongContext()
      : model_(read_config(test_model("deepseek_v3"))),
        with_{model_, cpu_processor(), GetParam()},
        weights_(model_),
        type_(kv_type(GetParam())),
        cache_(model_, limits()),
        placed_(cache_) {
    const auto width = static_cast<size_t>(model_.layers[0].attention.latent().key_width());
    const auto bytes =
        static_cast<size_t>(kPositions) * width * static_cast<size_t>(bytes_per_element(type_));
    for (int64_t layer = 0; layer < model_.layer_count(); ++layer) pieces_.emplace_back(bytes);
  }

  // Room in memory and in the file for one sequence each.
  KvLimits limits() const {
    const auto pages = static_cast<uint64_t>(PagedKvCache::pages_for(kPositions));
    uint64_t spilled = 0;
    for (const uint64_t bytes : PagedKvCache::spilled_page_bytes(model_, type_)) spilled += bytes;
    return {.type = type_,
            .memory_bytes = pages * PagedKvCache::page_bytes(model_, type_),
            .spill_bytes = pages * spilled,
            .spill_store = testing::file_store(::testing::TempDir(), SpillCalls::system())};
  }

  // One step of all sequences, with the same new rows in each of them.
  void step(int64_t rows, bool attends) {
    const std::vector<KvSequence*> members = {&placed_[0], &placed_[1]};
    KvTransaction transaction(cache_);
    for (KvSequence* member : members) transaction.reserve(*member, rows);
    const testing::StageBuffer buffer(cache_.stage_bytes(members));
    KvStage stage(buffer.bytes());
    for (int64_t layer = 0; layer < model_.layer_count(); ++layer) {
      cache_.load(stage, members, LayerId(layer));
      run_layer(layer, rows, attends, &stage);
      cache_.store(stage);
    }
    transaction.commit();
    past_ += rows;
  }

  const ModelDescription model_;
  const Arithmetic with_;
  const RandomAttention weights_;
  const DType type_;
  PagedKvCache cache_;
  PlacedSequences placed_;

 private:
  void run_layer(int64_t layer, int64_t rows, bool attends, const KvStage* stage) {
    Batch batch;
    const std::vector<TokenId> tokens(static_cast<size_t>(rows));
    batch.append(past_, tokens, kPositions, LogitsOf::none);
    std::vector<float> hidden =
        normal_floats(rows * model_.hidden, 1.0f, static_cast<unsigned>(past_ + layer));
    AttentionInputs inputs =
        pre_attention(with_, Rows{hidden.data(), rows, model_.hidden}, weights_.of(layer),
                      LayerId(layer), rotation_of(with_, batch));
    const KvView in_memory = cache_.view(placed_[0], LayerId(layer));
    const KvView spilled = cache_.view(placed_[1], LayerId(layer), stage);
    std::byte* piece = pieces_[static_cast<size_t>(layer)].data();
    std::byte* const whole[] = {piece};
    LayerCache in_one_piece{.type = type_, .page_tokens = kPositions};
    in_one_piece.parts.push_back(whole);
    std::vector<std::vector<float>> found;
    for (const LayerCache& cache : {in_memory.cache(), spilled.cache(), in_one_piece}) {
      Buffer output(with_.ops, rows, model_.layers[0].attention.output_width());
      const AttendingSequence sequence{output.rows(), inputs.rows(), cache, past_};
      keep(with_, std::span(&sequence, 1), LayerId(layer));
      if (!attends) continue;
      attention(with_, std::span(&sequence, 1), weights_.of(layer), LayerId(layer));
      found.push_back(output.download());
    }
    if (!attends) return;
    EXPECT_EQ(found[0], found[1]) << "layer " << layer << " after " << past_;
    EXPECT_EQ(found[0], found[2]) << "layer " << layer << " after " << past_;
    for (const float value : found[0]) ASSERT_TRUE(std::isfinite(value));
  }

  std::vector<std::vector<std::byte>> pieces_;
  int64_t past_ = 0;
};

TEST_P(LongContext, IsTheSameInMemoryAndSpilled) {
  ASSERT_TRUE(placed_.place(kPositions, kPositions));
  ASSERT_TRUE(placed_.place(kPositions, kPositions));
  EXPECT_FALSE(placed_[0].spilled());
  EXPECT_TRUE(placed_[1].spilled());
  step(kPositions - kDecoded, false);
  for (int64_t i = 0; i < kDecoded; ++i) step(1, true);
  EXPECT_EQ(placed_[0].length(), kPositions);
  // One vector of 32 + 16 numbers for each position and layer.
  EXPECT_EQ(cache_.pages_in_use() * static_cast<int64_t>(cache_.page_bytes()),
            kPositions * 3 * 48 * bytes_per_element(type_));
}

INSTANTIATE_TEST_SUITE_P(Precisions, LongContext,
                         ::testing::Values(Precision::f32, Precision::bf16));

}  // namespace
}  // namespace klotski
