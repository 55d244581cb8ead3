// Which sequences the engine admits together where more wait than run, by what is predicted of
// their experts, and that no token depends on it.

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "base/noise.h"
#include "engine/engine.h"
#include "engine/testing/models.h"

namespace klotski {
namespace {

class AdmissionTest : public ::testing::Test {
 protected:
  AdmissionTest() : model_(test_model("mixtral")), shape_(routing_shape(model_.description)) {}

  // An engine whose group has `micro_batches` times two sequences.
  Engine engine(PipelineOptions options, int64_t micro_batches, int64_t page_count = 200) {
    const RunLimits limits{
        .strategy = Strategy::klotski,
        .precision = Precision::f32,
        .kv_bytes = static_cast<uint64_t>(page_count) *
                    PagedKvCache::page_bytes(model_.description, kv_type(Precision::f32)),
        .micro_batch = 2,
        .micro_batches = micro_batches};
    const Workload workload{
        .sequences = 2 * micro_batches, .tokens_per_sequence = 64, .prompt_tokens = 16};
    Target target{.ops = reference_processor()};
    prepared_ = std::make_unique<PreparedModel>(model_.description, model_.checkpoint, target,
                                                model_.plan(limits, workload, options), options);
    return Engine(prepared_->pipeline());
  }

  // A network with weights at random: its predictions differ from token to token.
  std::shared_ptr<PathNetwork> random_network() const {
    auto network = std::make_shared<PathNetwork>(PathNetworkShape{
        .routing = shape_, .width = 8, .heads = 2, .inner = 8, .known_tokens = {1, 2, 3, 4, 5, 6}});
    for (neural::Parameter* parameter : network->parameters()) {
      const uint64_t key = noise_key(1, parameter->name);
      for (size_t i = 0; i < parameter->value.values.size(); ++i) {
        parameter->value.values[i] = static_cast<float>(noise(key, i) / noise_deviation());
      }
    }
    return network;
  }

  PipelineOptions predicting(std::string name) const {
    PipelineOptions options;
    options.predictor = {.name = std::move(name), .network = random_network()};
    return options;
  }

  TestModel model_;
  RoutingTraceShape shape_;
  std::unique_ptr<PreparedModel> prepared_;
};

struct AdmittedRun {
  std::map<int32_t, std::vector<TokenId>> generated;  // by the number of the sequence
  std::vector<int32_t> order;                         // sequences as they came to their first token
  int64_t experts = 0;                                // that passes needed, of all layers, summed
};

AdmittedRun run_through(Engine& engine, const Pipeline& pipeline) {
  AdmittedRun outcome;
  while (!engine.idle()) {
    for (const Progress& progress : engine.step()) {
      std::vector<TokenId>& tokens = outcome.generated[progress.sequence.value];
      if (tokens.empty()) outcome.order.push_back(progress.sequence.value);
      tokens.push_back(progress.token);
    }
    const GroupChoices& choices = pipeline.choices();
    for (size_t layer = 0; layer < choices.known_layers(); ++layer) {
      std::set<ExpertId> needed;
      for (int64_t row = 0; row < choices.tokens(); ++row) {
        const std::span<const ExpertId> chosen = choices.token(layer, row);
        needed.insert(chosen.begin(), chosen.end());
      }
      outcome.experts += std::ssize(needed);
    }
  }
  return outcome;
}

// Requests of two kinds in turn. A kind has its tokens, and by recorded routing its two experts of
// each layer.
TracedSequences two_kinds(const RoutingTraceShape& shape, int64_t requests, int64_t tokens) {
  TracedSequences traced{.shape = shape};
  for (int64_t i = 0; i < requests; ++i) {
    TracedSequence& sequence = traced.sequences.emplace_back();
    for (int64_t t = 0; t < tokens; ++t) {
      sequence.tokens.push_back(static_cast<TokenId>(100 * (i % 2) + (t + i) % 5));
      for (size_t layer = 0; layer < shape.layers.size(); ++layer) {
        sequence.choices.push_back(static_cast<uint16_t>(2 * (i % 2)));
        sequence.choices.push_back(static_cast<uint16_t>(2 * (i % 2) + 1));
      }
    }
  }
  return traced;
}

// The first group is of both kinds, since nothing was learnt yet; each later one is of one kind and
// needs half of the experts. Sequences follow their own routing, whenever they are admitted.
TEST_F(AdmissionTest, RequestsOfAKindRunTogether) {
  ASSERT_EQ(shape_.layers.front().top_k, 2);
  constexpr int64_t kPrompt = 6;
  const auto routing = std::make_shared<RecordedRouting>(two_kinds(shape_, 20, kPrompt + 8));
  const auto run_with = [&](const std::string& predictor) {
    PipelineOptions options = predicting(predictor);
    options.recorded_routing = routing;
    Engine one = engine(options, 2);
    for (int64_t i = 0; i < 20; ++i) {
      const std::vector<TokenId>& tokens = routing->stretch(i).tokens;
      one.submit({.prompt = {tokens.begin(), tokens.begin() + kPrompt},
                  .sampling = {},
                  .max_tokens = 8,
                  .stop_tokens = {}});
    }
    return run_through(one, prepared_->pipeline());
  };
  const AdmittedRun in_turn = run_with("correlation");
  const AdmittedRun alike = run_with("token");
  EXPECT_EQ(alike.generated, in_turn.generated);
  ASSERT_EQ(alike.order.size(), 20u);
  ASSERT_EQ(in_turn.order.size(), 20u);
  for (size_t i = 4; i < 20; ++i) {
    EXPECT_EQ(alike.order[i] % 2, alike.order[i / 4 * 4] % 2) << "the " << i << "th of a group";
    EXPECT_EQ(in_turn.order[i] / 4, static_cast<int32_t>(i / 4)) << "correlation needs gates";
  }
  // Five groups of 8 passes: 4 experts of a layer in each, or only in those of the first group.
  const int64_t layers = std::ssize(shape_.layers);
  EXPECT_EQ(in_turn.experts, layers * 5 * 8 * 4);
  EXPECT_EQ(alike.experts, layers * (8 * 4 + 4 * 8 * 2));
}

// Random requests, lengths and limits: every sequence has the same tokens bit for bit whether it is
// admitted in turn or by the scheduler. Some wait for memory, some for a place in the group.
TEST_F(AdmissionTest, TokensDoNotDependOnTheScheduler) {
  std::mt19937 random(5);
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  bool reordered = false;
  for (int trial = 0; trial < 4; ++trial) {
    std::vector<Request> requests;
    for (int i = 0; i < 24; ++i) {
      std::vector<TokenId> prompt(static_cast<size_t>(1 + below(30)));
      for (TokenId& token : prompt) token = static_cast<TokenId>(below(12));
      requests.push_back({.prompt = prompt,
                          .sampling = {.temperature = i % 2 == 0 ? 0.0 : 0.9, .seed = 7},
                          .max_tokens = 1 + below(6),
                          .stop_tokens = {}});
    }
    const int64_t micro_batches = 1 + below(3);
    const int64_t pages = 6 + below(20);
    const auto run_with = [&](const std::string& predictor) {
      Engine one = engine(predicting(predictor), micro_batches, pages);
      for (const Request& request : requests) one.submit(request);
      return run_through(one, prepared_->pipeline());
    };
    const AdmittedRun in_turn = run_with("correlation");
    for (const char* predictor : {"token", "path"}) {
      const AdmittedRun scheduled = run_with(predictor);
      EXPECT_EQ(scheduled.generated, in_turn.generated) << predictor;
      reordered |= scheduled.order != in_turn.order;
    }
  }
  EXPECT_TRUE(reordered);
}

}  // namespace
}  // namespace klotski
