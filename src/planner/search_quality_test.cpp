// The search predicts few choices with care: its result is nearly as fast as the fastest of all,
// which a search finds that predicts every group size with care, and then the variants of the
// fastest.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include "base/testing.h"
#include "planner/expert_costs.h"
#include "planner/search.h"
#include "planner/testing.h"

namespace klotski {
namespace {

constexpr uint64_t kUnitBytes = 10'000'000;

double one_of(std::mt19937_64& random, std::initializer_list<double> values) {
  return values.begin()[between(random, 0, static_cast<int64_t>(values.size()) - 1)];
}

// A fixed time and one for every row.
Curve line_of(double seconds, double seconds_a_row) {
  return Curve({1.0, 1e5}, {seconds + seconds_a_row, seconds + 1e5 * seconds_a_row});
}

// A model, a machine and work at random. The more sequences a group has, the fewer experts stay.
struct RandomSetting {
  std::mt19937_64 random;
  bool on_device;
  ModelDescription model;
  Profile profile;
  ExpertShares shares;
  PlannedWork work;
  int64_t slots_without_sequences;
  int64_t sequences_of_a_slot;

  explicit RandomSetting(uint64_t seed)
      : random(seed),
        on_device(between(random, 0, 1) == 1),
        model(random_model()),
        profile(random_profile()),
        shares(random_shares()),
        work{.sequences = between(random, 1, 24),
             .prompt_tokens = between(random, 4, 32),
             .generated_tokens = between(random, 2, 8)},
        slots_without_sequences(between(random, units() / 8, units())),
        sequences_of_a_slot(between(random, 1, 4)) {}

  int64_t units() const { return std::ssize(units_of(model, UnitKind::expert)); }

  // Drawn one after the other: the order of arguments would be the compiler's.
  ModelDescription random_model() {
    const int64_t layers = between(random, 3, 10);
    const int64_t experts = between(random, 1, 2) * 8;
    const auto top_k = static_cast<int>(between(random, 1, 4));
    return shape_of(layers, experts, top_k);
  }

  Profile random_profile() {
    Profile found = plain_profile(model);
    found.machine.disk().bytes_per_second = one_of(random, {1e8, 1e9, 1e10});
    LayerProfile& layer = found.model.kinds[0];
    layer.attention_products = line_of(1e-4, one_of(random, {1e-6, 1e-5}));
    const double expert_seconds = one_of(random, {1e-4, 1e-3});
    layer.expert = line_of(expert_seconds, one_of(random, {1e-6, 1e-5, 1e-4}));
    layer.expert_arranged = layer.expert.faster(one_of(random, {1.0, 1.5}));
    found.model.logits = line_of(1e-4, one_of(random, {1e-6, 1e-4}));
    if (!on_device) return found;
    const double link = one_of(random, {5e9, 5e10});
    LinkProfile& measured = found.machine.links.emplace_back();
    for (const LinkCurve& one : kLinkCurves) {
      measured.*one.curve = Curve({1e3, 1e9}, {1e3 / link + 1e-5, 1e9 / link});
    }
    layer.expert_on_cpu = line_of(one_of(random, {2e-4, 2e-3}), 1e-4);
    layer.attend_decode_on_cpu = constant(one_of(random, {1e-6, 1e-5}));
    return found;
  }

  ExpertShares random_shares() {
    std::vector<std::vector<double>> found;
    for (const Layer& layer : model.layers) {
      std::vector<double>& of_layer = found.emplace_back();
      for (int64_t e = 0; e < layer.feed_forward.experts; ++e) {
        of_layer.push_back(static_cast<double>(between(random, 1, 8)));
      }
    }
    return ExpertShares(model, std::move(found));
  }

  PredictionInputs prediction_inputs() const {
    return {.model = model,
            .profile = profile,
            .facts =
                [](const WeightUnit& unit) {
                  const uint64_t bytes = unit.kind == UnitKind::expert ? kUnitBytes : 1000;
                  return UnitFacts{bytes, false, bytes};
                },
            .shares = shares};
  }

  SearchSpace space() const {
    SearchSpace found{.sequences = work.sequences,
                      .most_experts = model.layers[0].feed_forward.experts,
                      .top_k = model.layers[0].feed_forward.router.top_k};
    if (!on_device) return found;
    found.strategies.insert(found.strategies.end(), {Strategy::cgopipe, Strategy::hybrid});
    found.cpu_attention = {false, true};
    return found;
  }

  std::optional<FittedGroup> fit(const Choice& choice) const {
    FittedGroup group{.policy = resident_policy(model), .memory = {}, .at_once = choice.group()};
    Policy& policy = group.policy;
    policy.strategy = choice.strategy;
    policy.group.micro_batch = choice.micro_batch;
    policy.group.micro_batches = choice.micro_batches;
    policy.group.micro_batch_rows = std::max<int64_t>(choice.micro_batch, 64);
    policy.cache.hot_experts = choice.hot_experts;
    int64_t& slots = policy.layout.compute().slots[index_of(UnitKind::expert)];
    slots = slots_without_sequences - choice.group() / sequences_of_a_slot;
    if (slots < 8) return {};
    if (!on_device) return group;
    std::array<int64_t, kUnitKinds> host_slots{};
    for (size_t k = 0; k < kUnitKinds; ++k) {
      host_slots[k] = std::ssize(units_of(model, static_cast<UnitKind>(k)));
    }
    policy.cache.kept_experts = slots - 4;
    policy.layout.set_host_slots(host_slots);
    policy.cache.loads_ahead = 3;
    policy.cache.expert_shares = shares.all();
    policy.division.attend_at_host(choice.cpu_attention);
    if (properties_of(choice.strategy).divides_experts) {
      policy.division.shared_rows = 1024;
      policy.division.costs = expert_costs(prediction_inputs(), policy, 64);
    }
    return group;
  }

  double careful_seconds(const FittedGroup& group) const {
    PlannedWork with_room = work;
    with_room.at_once = group.at_once;
    return predict(prediction_inputs(), group.policy, with_room).seconds();
  }

  // The fastest of some choices, and the time it takes; infinite where none fits.
  std::pair<Choice, double> fastest(const std::vector<Choice>& choices) const {
    std::pair<Choice, double> best{{}, std::numeric_limits<double>::infinity()};
    for (const Choice& choice : choices) {
      const auto group = fit(choice);
      const double seconds = group ? careful_seconds(*group) : best.second;
      if (seconds < best.second) best = {choice, seconds};
    }
    return best;
  }
  double exhaustive_seconds() const {
    const auto [size, seconds] = fastest(group_sizes(space()));
    return std::min(seconds, fastest(variants(space(), size)).second);
  }
};

TEST(Search, FindsWhatAnExhaustiveOneFinds) {
  const int wanted = trials(50);
  int settings = 0;
  for (uint64_t seed = 1; settings < wanted; ++seed) {
    const RandomSetting setting(seed);
    const std::vector<Candidate> found =
        search(setting.prediction_inputs(), setting.work, setting.space(),
               [&](const Choice& choice) { return setting.fit(choice); });
    if (found.empty()) continue;
    ++settings;
    const double seconds = setting.careful_seconds(found.front().group);
    EXPECT_NEAR(found.front().prediction.seconds(), seconds, 0.02 * seconds) << "seed " << seed;
    EXPECT_LE(seconds, 1.02 * setting.exhaustive_seconds()) << "seed " << seed;
  }
}

// Rough predictions are made on two layers of such a model. A strategy with buffers for two layers
// is then predicted as if all weights stayed in memory.
TEST(Search, NoVariantOfTheChosenGroupIsFasterInALargeModel) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    RandomSetting setting(seed);
    setting.on_device = true;
    setting.model = shape_of(24, 128, 8);
    setting.profile = setting.random_profile();
    setting.shares = setting.random_shares();
    setting.work = {.sequences = 4, .prompt_tokens = 64, .generated_tokens = 8};
    setting.slots_without_sequences = setting.units() / 2;
    const std::vector<Candidate> found =
        search(setting.prediction_inputs(), setting.work, setting.space(),
               [&](const Choice& choice) { return setting.fit(choice); });
    ASSERT_FALSE(found.empty());
    const auto [other, seconds] = setting.fastest(variants(setting.space(), found.front().choice));
    EXPECT_LE(setting.careful_seconds(found.front().group), 1.02 * seconds) << "seed " << seed;
  }
}

}  // namespace
}  // namespace klotski
