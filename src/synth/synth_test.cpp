#include "synth/synth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/json.h"
#include "base/noise.h"
#include "forward/layer.h"
#include "kernels/testing.h"
#include "model/config.h"
#include "model/tensors.h"
#include "synth/testing.h"
#include "weights/checkpoint.h"

namespace klotski {
namespace {

using namespace testing_synth;
namespace fs = std::filesystem;

SynthReport make(const std::string& shape, const fs::path& folder, uint64_t seed = 0,
                 std::optional<double> share = std::nullopt) {
  return synthesise(
      {.shape = shape, .folder = folder, .seed = seed, .share = share, .tokenizer = {}},
      [](uint64_t, uint64_t) {});
}

// A model read back, and one pass of it over a batch that counts where tokens go.
class Pass {
 public:
  explicit Pass(const fs::path& folder)
      : model_(read_config(folder)), checkpoint_(Checkpoint::open(folder)) {}

  // The share of the top_k most popular experts, averaged over layers; leaves logits().
  double run(const Batch& batch) {
    const Arithmetic with{model_, reference_processor(), Precision::f32};
    Buffer hidden(reference_processor(), batch.rows(), model_.hidden);
    const WeightSet weights = load(model_tensors(model_));
    embed(with, hidden.rows(), weights, batch.tokens, batch.positions);
    double shares = 0;
    for (int64_t i = 0; i < model_.layer_count(); ++i) {
      const LayerId layer(i);
      std::vector<TensorSpec> specs = attention_tensors(model_, layer);
      for (const TensorSpec& spec : gate_tensors(model_, layer)) specs.push_back(spec);
      const WeightSet layer_weights = load(specs);
      attend(with, hidden.rows(), layer_weights, layer, batch);
      shares += feed_forward(with, hidden.rows(), layer_weights, layer);
    }
    logits_ = Buffer(reference_processor(), batch.rows(), model_.vocabulary);
    klotski::logits(with, logits_.rows(), hidden.rows(), weights, batch.logit_rows());
    return shares / static_cast<double>(model_.layer_count());
  }

  std::span<float> logits() { return logits_.floats(); }
  const ModelDescription& model() const { return model_; }

 private:
  WeightSet load(const std::vector<TensorSpec>& specs) {
    WeightSet set;
    for (const TensorSpec& spec : specs) {
      const TensorEntry& entry = checkpoint_.require(spec.name);
      EXPECT_EQ(entry.shape, spec.shape);
      std::vector<std::byte>& bytes = storage_[spec.name];
      bytes.resize(entry.bytes);
      checkpoint_.read(entry, bytes);
      set.set(spec.role, {bytes.data(), entry.dtype, entry.shape});
    }
    return set;
  }

  void attend(const Arithmetic& with, Rows hidden, const WeightSet& weights, LayerId layer,
              const Batch& batch) {
    AttentionInputs inputs = pre_attention(with, hidden, weights, layer, rotation_of(with, batch));
    Buffer attended(with.ops, hidden.count, model_.layer(layer).attention.output_width());
    for (const BatchSequence& rows : batch.sequences) {
      const AttentionRows own = rows_of(inputs.rows(), rows);
      auto* keys = reinterpret_cast<std::byte*>(own.parts[1].data);
      auto* values = reinterpret_cast<std::byte*>(own.parts[2].data);
      const LayerCache cache{.parts = {std::span(&keys, 1), std::span(&values, 1)},
                             .type = DType::F32,
                             .page_tokens = rows.tokens};
      const AttendingSequence attending{attended.rows(rows), own, cache, 0};
      attention(with, std::span(&attending, 1), weights, layer);
    }
    post_attention(with, hidden, attended.rows(), weights, layer);
  }

  double feed_forward(const Arithmetic& with, Rows hidden, const WeightSet& weights,
                      LayerId layer) {
    Buffer normed(with.ops, hidden.count, hidden.width);
    Routing routing = route(with, normed.rows(), hidden, weights, layer);
    with.ops.memory.finish();
    read_choices(routing);
    Buffer slots(with.ops, hidden.count * routing.top_k, hidden.width);
    std::map<ExpertId, int64_t> counts;
    for (size_t i = 0; i < routing.chosen.size(); ++i) {
      const auto slot = static_cast<int64_t>(i);
      const ExpertId expert = routing.chosen[i];
      ++counts[expert];
      const WeightSet set = load(expert_tensors(model_, layer, expert));
      const auto in_row = static_cast<int32_t>(slot / routing.top_k);
      const auto out_row = static_cast<int32_t>(slot);
      const ChosenExpert chosen{
          .weights = {set[Role::expert_gate], set[Role::expert_up], set[Role::expert_down]},
          .in_rows = std::span(&in_row, 1),
          .out_rows = std::span(&out_row, 1)};
      run_experts(with, slots.rows(), normed.rows(), std::span(&chosen, 1), layer);
    }
    with.ops.combine(hidden, slots.rows(), routing.weights.span());
    add_shared_expert(with, hidden, normed.rows(), weights, layer);
    std::vector<int64_t> sorted;
    for (const auto& [expert, count] : counts) sorted.push_back(count);
    std::sort(sorted.rbegin(), sorted.rend());
    double popular = 0;
    for (size_t i = 0; i < std::min(sorted.size(), static_cast<size_t>(routing.top_k)); ++i) {
      popular += static_cast<double>(sorted[i]);
    }
    return popular / static_cast<double>(routing.chosen.size());
  }

  ModelDescription model_;
  Checkpoint checkpoint_;
  std::map<std::string, std::vector<std::byte>> storage_;
  Buffer logits_{reference_processor(), 0, 0};
};

Batch random_batch(int64_t vocabulary, int sequences, int64_t tokens) {
  Batch batch;
  for (int s = 0; s < sequences; ++s) {
    std::vector<TokenId> ids;
    for (int64_t i = 0; i < tokens; ++i) {
      const uint64_t index = static_cast<uint64_t>(s * tokens + i);
      ids.push_back(
          static_cast<TokenId>(noise_bits(17, index) % static_cast<uint64_t>(vocabulary)));
    }
    batch.append(0, ids, tokens, LogitsOf::every_token);
  }
  return batch;
}

TEST(Synth, RoutersAreAsSkewedAsAskedInARealPass) {
  struct Case {
    const char* shape;
    double share;
  };
  for (const Case& c : {Case{"L=4,H=128,F=32,E=8,K=2,vocab=2000", 0.55},
                        Case{"L=3,H=128,F=32,E=8,K=2,vocab=2000", 0.8},
                        Case{"L=4,H=128,F=16,E=4,K=1,vocab=2000", 0.4},
                        Case{"qwen3-30b-a3b,L=3,H=128,F=16,E=32,K=4,vocab=2000", 0.5},
                        Case{"qwen1.5-moe-a2.7b,L=3,H=128,F=16,E=16,K=4,shared=32,vocab=2000", 0.6},
                        Case{"olmoe-1b-7b,L=3,H=128,F=16,E=64,K=8,vocab=2000", 0.3}}) {
    ScratchFolder scratch;
    make(c.shape, scratch.path() / "m", 7, c.share);
    Pass pass(scratch.path() / "m");
    const double found = pass.run(random_batch(2000, 10, 20));
    EXPECT_NEAR(found, c.share, 0.07) << c.shape;
    double squares = 0;
    for (const float logit : pass.logits()) {
      ASSERT_TRUE(std::isfinite(logit));
      squares += double{logit} * logit;
    }
    EXPECT_NEAR(std::sqrt(squares / static_cast<double>(pass.logits().size())), 3.0, 0.5)
        << c.shape;
  }
}

TEST(Synth, ManyLayersStaySane) {
  ScratchFolder scratch;
  make("L=100,H=32,F=16,E=4,K=2,vocab=300", scratch.path() / "m", 1, 0.7);
  Pass pass(scratch.path() / "m");
  EXPECT_NEAR(pass.run(random_batch(300, 4, 10)), 0.7, 0.1);
  for (const float logit : pass.logits()) EXPECT_LT(std::abs(logit), 30.0f);
}

TEST(Synth, TheSameSeedGivesTheSameFilesInAnyNumberOfShards) {
  ScratchFolder scratch;
  const auto make_in = [&](const char* name, uint64_t seed, uint64_t shard) {
    return synthesise(
        {.shape = "L=2,H=64,F=64,E=4,K=2",
         .folder = scratch.path() / name,
         .seed = seed,
         .share = {},
         .dtype = DType::F16,
         .tokenizer = {}},
        [](uint64_t, uint64_t) {}, shard);
  };
  EXPECT_EQ(make_in("a", 1, kMaxShardBytes).weight_files, 1u);
  make_in("b", 1, kMaxShardBytes);
  EXPECT_GT(make_in("c", 1, 100'000).weight_files, 3u);
  make_in("d", 2, kMaxShardBytes);
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
    EXPECT_EQ(content_of(scratch.path() / "a" / name), content_of(scratch.path() / "b" / name));
  }
  EXPECT_NE(content_of(scratch.path() / "a" / "model.safetensors"),
            content_of(scratch.path() / "d" / "model.safetensors"));
  const Checkpoint one = Checkpoint::open(scratch.path() / "a");
  const Checkpoint many = Checkpoint::open(scratch.path() / "c");
  EXPECT_EQ(one.total_bytes(), many.total_bytes());
  ASSERT_EQ(one.tensors().size(), many.tensors().size());
  for (const TensorEntry& entry : one.tensors()) {
    const TensorEntry& other = many.require(entry.name);
    ASSERT_EQ(entry.bytes, other.bytes);
    std::vector<std::byte> a(entry.bytes), b(entry.bytes);
    one.read(entry, a);
    many.read(other, b);
    EXPECT_EQ(a, b) << entry.name;
    EXPECT_EQ(entry.dtype, DType::F16);
  }
}

TEST(Synth, SaysWhatItWrote) {
  ScratchFolder scratch;
  uint64_t last = 0, all = 0;
  const SynthReport report = synthesise({.shape = "L=2,H=64,F=64,E=4,K=1",
                                         .folder = scratch.path() / "m",
                                         .seed = 3,
                                         .share = {},
                                         .tokenizer = {}},
                                        [&](uint64_t done, uint64_t total) {
                                          EXPECT_GT(done, last);
                                          last = done;
                                          all = total;
                                        });
  EXPECT_EQ(report.family, "mixtral");
  EXPECT_EQ(last, report.weight_bytes);
  EXPECT_EQ(all, report.weight_bytes);
  EXPECT_EQ(Checkpoint::open(report.folder).total_bytes(), report.weight_bytes);
  const Json config = parse_json(content_of(report.folder / "config.json"), "config.json");
  EXPECT_EQ(config["klotski_synthetic"]["seed"], 3);
  EXPECT_EQ(config["klotski_synthetic"]["share"], 0.5);
  EXPECT_EQ(config["dtype"], "bfloat16");
  EXPECT_EQ(read_config(report.folder).end_tokens, (std::vector<TokenId>{2}));
}

TEST(Synth, KnowsTheBytesOfCompactWeightsBeforehand) {
  ScratchFolder scratch;
  const SynthReport plain = make("L=2,H=512,F=300,E=4,K=1", scratch.path() / "plain");
  const SynthReport compact = make("L=2,H=512,F=300,E=4,K=1,compact", scratch.path() / "compact");
  EXPECT_EQ(Checkpoint::open(compact.folder).total_bytes(), compact.weight_bytes);
  EXPECT_LT(compact.weight_bytes, plain.weight_bytes);
  EXPECT_EQ(compact.parameters, plain.parameters);
  EXPECT_EQ(kind_of([&] { make("L=2,H=512,F=320,E=4,K=1,mxfp4", scratch.path() / "mxfp4"); }),
            ErrorKind::usage)
      << "a type of GGUF files";
}

TEST(Synth, RefusesBeforeItWritesAnything) {
  ScratchFolder scratch;
  const fs::path out = scratch.path() / "m";
  EXPECT_EQ(kind_of([&] { make("nothing", out); }), ErrorKind::usage);
  EXPECT_EQ(kind_of([&] { make("L=1,H=64,F=8,E=4,K=2,vocab=100", out); }), ErrorKind::usage);
  for (const double share : {0.0, 0.5, 1.0, 2.0}) {
    EXPECT_EQ(kind_of([&] { make("L=1,H=64,F=8,E=4,K=2", out, 0, share); }), ErrorKind::usage);
  }
  EXPECT_EQ(kind_of([&] { make("L=1000,H=65536,F=65536,E=4096,K=2", out); }),
            ErrorKind::does_not_fit);
  const auto with_tokenizer = [&](const char* shape) {
    synthesise({.shape = shape,
                .folder = out,
                .share = {},
                .tokenizer = fs::path(KLOTSKI_MODELS) / "tiny-mixtral"},
               [](uint64_t, uint64_t) {});
  };
  EXPECT_EQ(kind_of([&] { with_tokenizer("L=1,H=64,F=8,E=4,K=2,vocab=4095"); }), ErrorKind::usage);
  EXPECT_TRUE(has_nothing(scratch.path()));
  with_tokenizer("L=1,H=64,F=8,E=4,K=2");
  EXPECT_EQ(read_config(out).vocabulary, 4096);
  EXPECT_EQ(kind_of([&] { make("L=1,H=64,F=8,E=4,K=2", out); }),
            ErrorKind::usage);  // not empty now
}

}  // namespace
}  // namespace klotski
