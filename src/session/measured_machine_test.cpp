// A plan for a machine as it was measured, beside what runs took there.

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/file.h"
#include "hardware/profile.h"
#include "kernels/testing.h"
#include "planner/choose_plan.h"
#include "planner/sampled_prediction.h"
#include "synth/synthetic_model.h"

namespace klotski {
namespace {

constexpr double kMeasuredRate = 9432.0;  // tokens/s of 64 sequences, hybrid in groups of 8 x 8

// Two layers of large experts on a GPU with memory for all of them but one beside keys and values
// of 64 sequences, or for all of them beside those of 40.
class MeasuredMachine : public ::testing::Test {
 protected:
  static Profile profile() {
    const std::string text =
        read_text_file(KLOTSKI_TEST_DATA "/profiles/h200-mixtral-two-layers.json", kMiB);
    const Json json = parse_json(text, "the profile");
    return read_profile(text, json["fingerprint"].get<std::string>()).value();
  }

  RunInputs run_inputs() const {
    RunInputs run{.model = made_.description,
                  .layouts = layouts_,
                  .processor = cpu_processor(),
                  .cpu = &cpu_processor()};
    run.memory.resident_bytes = 300 * kMiB;
    run.memory.device = DeviceMemoryState{.own_bytes = 600 * kMiB,
                                          .own_bytes_at_start = 600 * kMiB,
                                          .free_bytes = 139 * kGiB,
                                          .processor_bytes = 64 * kMiB};
    return run;
  }

  static RunLimits limits() {
    RunLimits limits;
    limits.hypothetical = true;  // the memory of the machine that tests run on does not count
    limits.ram_bytes = 40 * kGiB;
    limits.vram_bytes = 7 * kGiB;
    return limits;
  }

  const SyntheticModel made_ =
      synthetic_model({.shape = "mixtral-8x7b,L=2", .folder = {}, .share = {}, .tokenizer = {}});
  const UnitLayouts layouts_{made_.description, made_.checkpoint};
  const ExpertShares shares_{made_.description};
  const Profile profile_ = profile();
  const PlanInputs inputs_{run_inputs(), profile_, shares_};
  const Workload work_{
      .sequences = 64, .tokens_per_sequence = 576, .prompt_tokens = 512, .generated_tokens = 64};
  const ChosenPlan chosen_ = choose_plan(inputs_, limits(), work_);
};

TEST_F(MeasuredMachine, TheFasterOfTwoNearlyFittingGroupsIsFound) {
  EXPECT_EQ(chosen_.run.policy.strategy, Strategy::hybrid);
  EXPECT_EQ(chosen_.candidates.front().group.at_once, 64);
  EXPECT_NEAR(chosen_.rate(), kMeasuredRate, 0.1 * kMeasuredRate);
}

// The search weighs all ways to use link and CPU and takes the one that the machine and the work
// favour: experts over the link alone, divided with the CPU, or attention on the CPU as well. Of
// cgopipe it knows that it is slower on this machine, as it was when it ran there.
TEST_F(MeasuredMachine, WhoComputesFollowsFromTheMachineAndTheWork) {
  Profile slow_cpu = profile_;
  for (LayerProfile& layer : slow_cpu.model.kinds) {
    layer.expert_on_cpu = layer.expert_on_cpu.faster(1.0 / 50);
    layer.attend_decode_on_cpu = layer.attend_decode_on_cpu.faster(1.0 / 50);
  }
  const Workload many{
      .sequences = 512, .tokens_per_sequence = 544, .prompt_tokens = 512, .generated_tokens = 32};
  struct Case {
    const Profile& machine;
    uint64_t vram_bytes;
    const Workload& work;
    Strategy strategy;
    bool cpu_attention;
  };
  for (const Case& one : {Case{slow_cpu, 7 * kGiB, work_, Strategy::klotski, false},
                          Case{profile_, 7 * kGiB, work_, Strategy::hybrid, false},
                          Case{profile_, 4608 * kMiB, many, Strategy::hybrid, true}}) {
    RunLimits within = limits();
    within.vram_bytes = one.vram_bytes;
    const ChosenPlan found = choose_plan({run_inputs(), one.machine, shares_}, within, one.work);
    const Choice& choice = found.candidates.front().choice;
    EXPECT_EQ(choice.strategy, one.strategy) << strategy_name(choice.strategy);
    EXPECT_EQ(choice.cpu_attention, one.cpu_attention) << strategy_name(choice.strategy);
    EXPECT_EQ(found.run.policy.strategy, one.strategy);
    size_t of_cgopipe = 0;
    for (const Candidate& other : found.candidates) {  // a usual size may be 1 % slower
      EXPECT_LE(other.prediction.tokens_per_second(), 1.01 * found.rate());
      if (other.choice.strategy == Strategy::cgopipe) ++of_cgopipe;
    }
    EXPECT_GT(of_cgopipe, 0u);
  }
}

// Prompts borrow more slots in some groups than in others. The search drops groups that a coarse
// look, which sees few passes, finds 15 % slower than another of their way: it must not take the
// passes after prompts for all.
TEST_F(MeasuredMachine, ACoarseLookKeepsFastGroups) {
  const PredictionInputs with = inputs_.prediction_inputs();
  const PlannedWork work = planned_work(work_);
  const SampledPrediction coarse(with, work, with.model.layer(LayerId(0)).feed_forward.experts,
                                 Care::coarse);
  RunLimits within = limits();
  within.vram_bytes = 7 * kGiB + 256 * kMiB;
  within.strategy = Strategy::hybrid;
  const auto coarse_by_careful = [&](int64_t micro_batch) {
    within.micro_batch = micro_batch;
    within.micro_batches = work_.sequences / micro_batch;
    const ChosenPlan forced = choose_plan(inputs_, within, work_);
    std::vector<Candidate> group(1);
    group[0].group.policy = forced.run.policy;
    group[0].group.at_once = work_.sequences;
    coarse.of_all(group);
    return group[0].prediction.tokens_per_second() / forced.rate();
  };
  const double usual = coarse_by_careful(16);
  for (const int64_t micro_batch : {4, 8, 32}) {
    EXPECT_GT(coarse_by_careful(micro_batch), 0.85 * usual) << micro_batch;
  }
}

TEST_F(MeasuredMachine, CgopipeIsPlannedWhereItIsAskedFor) {
  RunLimits within = limits();
  within.strategy = Strategy::cgopipe;
  const ChosenPlan found = choose_plan(inputs_, within, work_);
  EXPECT_EQ(found.run.policy.strategy, Strategy::cgopipe);
  EXPECT_TRUE(found.run.policy.division.attends_elsewhere());
  EXPECT_LT(found.rate(), chosen_.rate());
}

// Prompts lend slots, whose experts come back during the first passes of decoding: a prediction
// made of a few passes must not take these for all.
TEST_F(MeasuredMachine, AFewPassesOfDecodingStandForAll) {
  PlannedWork work = planned_work(work_);
  work.at_once = 64;
  const auto decode_seconds = [&](int64_t averaged_layers) {
    return predict(inputs_.prediction_inputs(), chosen_.run.policy, work,
                   {.averaged_layers = averaged_layers})
        .decode_seconds;
  };
  const double of_all_passes = decode_seconds(2 * work.generated_tokens);
  EXPECT_NEAR(decode_seconds(16), of_all_passes, 0.05 * of_all_passes);
  EXPECT_LT(decode_seconds(4), 1.6 * of_all_passes);
}

}  // namespace
}  // namespace klotski
