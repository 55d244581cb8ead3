#include "session/session.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/process_memory.h"
#include "base/testing.h"
#include "device/testing.h"
#include "kernels/testing.h"
#include "session/sample_text.h"
#include "session/testing.h"
#include "weights/testing.h"

namespace klotski {
namespace {

using ::klotski::testing::generate;
using ::klotski::testing::HostDevice;
using ::klotski::testing::tiny_model;
using ::klotski::testing::Tokens;

const Tokens kPrompts = {{1, 5, 9, 13}, {1, 2}, {1, 200, 100, 50, 25, 12}};
constexpr int64_t kGenerated = 6;

Workload prompts_workload() { return testing::workload_of(kPrompts, kGenerated); }

SessionOptions on_the_cpu(RunLimits limits = {}) {
  SessionOptions options;
  options.device = "cpu";
  options.limits = limits;
  return options;
}

// Everything that a session told.
struct Heard {
  std::vector<Remark> remarks;
  std::vector<Policy> planned;
  std::vector<WorkProgress> progress;

  SessionEvents events() {
    return {.remark = [this](const Remark& remark) { remarks.push_back(remark); },
            .planned = [this](const RunPlan& plan) { planned.push_back(plan.policy); },
            .progress = [this](const WorkProgress& now) { progress.push_back(now); }};
  }
};

// The machine is measured anew in every test.
class SessionTest : public ::testing::Test {
 protected:
  testing_files::ScratchFolder scratch_;
  testing_files::ScopedEnvironment cache_{"KLOTSKI_CACHE", scratch_.path().c_str()};
  Heard heard_;
};

// A target made of host memory that stands for a GPU with the reference's arithmetic.
OpenedTarget host_device() {
  auto device = std::make_unique<HostDevice>();
  Target target{.ops = reference_processor(), .device = device.get()};
  return {.device = std::move(device), .target = std::move(target)};
}

TEST_F(SessionTest, OpensPlansLoadsAndGeneratesWithoutAWord) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Tokens by_rules;
  Tokens by_prediction;
  {
    Session session(tiny_model(), on_the_cpu(), heard_.events());
    session.plan(prompts_workload());
    session.load();
    by_rules = generate(session, kPrompts, kGenerated);
    EXPECT_TRUE(heard_.remarks.empty()) << "plans by rules measure nothing";
    session.plan(prompts_workload(), PlanBy::prediction);
    EXPECT_FALSE(session.loaded());
    session.load();
    session.warm_up(Tokenizer::load(session.model().folder), sample_text());
    by_prediction = generate(session, kPrompts, kGenerated);
    EXPECT_GT(session.report().passes, 0);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(by_rules, by_prediction);
  for (const auto& tokens : by_rules) EXPECT_EQ(std::ssize(tokens), kGenerated);
  ASSERT_EQ(heard_.remarks.size(), 1u);
  EXPECT_EQ(heard_.remarks[0].topic, Remark::Topic::machine_measured);
  EXPECT_EQ(heard_.remarks[0].text.find('\n'), std::string::npos);
  EXPECT_EQ(heard_.planned.size(), 2u);
}

TEST_F(SessionTest, LoadingADeviceReportsProgress) {
  Session session(tiny_model(), host_device(), {}, heard_.events());
  ASSERT_TRUE(session.on_device());
  session.plan(prompts_workload());
  EXPECT_TRUE(heard_.progress.empty());
  session.load();
  ASSERT_FALSE(heard_.progress.empty());
  uint64_t before = 0;
  for (const WorkProgress& now : heard_.progress) {
    EXPECT_EQ(now.work, "loading weights");
    EXPECT_GE(now.done_bytes, before);
    before = now.done_bytes;
  }
  EXPECT_EQ(before, heard_.progress.back().total_bytes);
  const Tokens on_device = generate(session, kPrompts, kGenerated);
  SessionOptions options = on_the_cpu();
  options.kernels = "reference";
  Session on_cpu(tiny_model(), options);
  on_cpu.plan(prompts_workload());
  on_cpu.load();
  EXPECT_EQ(on_device, generate(on_cpu, kPrompts, kGenerated));
}

TEST_F(SessionTest, PlansAndTheirReasonsReadNoWeight) {
  Session session(testing::tiny_model_without_weights(), on_the_cpu());
  session.plan(prompts_workload());
  session.plan(prompts_workload(), PlanBy::prediction);
  const Planning planning = session.explain(prompts_workload());
  EXPECT_GT(planning.prediction().tokens_per_second(), 0.0);
  const std::vector<Reason> reasons = planning.reasons();
  EXPECT_TRUE(std::any_of(reasons.begin(), reasons.end(),
                          [](const Reason& reason) { return reason.what == "strategy"; }));
  EXPECT_TRUE(std::any_of(planning.what_ifs().begin(), planning.what_ifs().end(),
                          [](const WhatIf& one) { return one.change == "twice the memory"; }));
  session.load();  // by the plan made before the explained one
  EXPECT_NE(refusal([&] { generate(session, kPrompts, kGenerated); }).find("a weight was read"),
            std::string::npos);
}

TEST_F(SessionTest, PlansOfASyntheticModelGenerateNoWeight) {
  // 57 GiB of weights, were they generated.
  Session session(testing::synthetic_model_without_weights("qwen3-30b-a3b"),
                  on_the_cpu({.ram_bytes = 16 * kGiB, .hypothetical = true}));
  const uint64_t before = resident_bytes();
  const RunPlan& plan = session.plan(prompts_workload());
  EXPECT_LT(plan.policy.layout.compute().slots[index_of(UnitKind::expert)], 48 * 128);
  EXPECT_LT(resident_bytes(), before + 256 * kMiB);
}

TEST_F(SessionTest, TooLittleMemoryToMeasureIsARemarkWhereTheWorkFits) {
  SessionOptions options = on_the_cpu();
  options.kernels = "cpu";
  Session session(tiny_model(), options, heard_.events());
  // Measuring takes at least 32 MiB more than the process has; the tiny model runs in less. Opening
  // the session took memory too, much of it with a sanitizer.
  session.set_limits({.ram_bytes = resident_bytes() + 31 * kMiB});
  const Workload small{.sequences = 1, .tokens_per_sequence = 16, .prompt_tokens = 8};
  session.plan(small, PlanBy::prediction);
  session.plan(small, PlanBy::prediction);
  ASSERT_EQ(heard_.remarks.size(), 1u) << "told once";
  EXPECT_EQ(heard_.remarks[0].topic, Remark::Topic::no_prediction);
  EXPECT_EQ(session.foresight_or_none(), nullptr);
}

TEST_F(SessionTest, WorkThatDoesNotFitIsRefusedWithoutRemarks) {
  Session session(tiny_model(), on_the_cpu({.ram_bytes = kMiB}), heard_.events());
  EXPECT_NE(
      refusal([&] { session.plan(prompts_workload(), PlanBy::prediction); }).find("too little"),
      std::string::npos);
  EXPECT_TRUE(heard_.remarks.empty());
  EXPECT_TRUE(heard_.planned.empty());
  EXPECT_NE(refusal([&] { session.load(); }).find("before it was planned"), std::string::npos);
  EXPECT_NE(refusal([&] { session.engine(); }).find("before it was loaded"), std::string::npos);
}

TEST_F(SessionTest, LimitsMayChangeFromPlanToPlan) {
  Session session(tiny_model(), on_the_cpu());
  RunLimits limits{.strategy = Strategy::simple, .micro_batch = 2};
  session.set_limits(limits);
  EXPECT_EQ(session.plan(prompts_workload()).policy.strategy, Strategy::simple);
  limits.strategy = Strategy::multi_batch;
  session.set_limits(limits);
  EXPECT_EQ(session.plan(prompts_workload()).policy.strategy, Strategy::multi_batch);
  limits.strategy = Strategy::hybrid;
  EXPECT_NE(refusal([&] { session.set_limits(limits); }).find("expected a GPU"), std::string::npos);
  EXPECT_EQ(session.options().limits.strategy, Strategy::multi_batch);
}

TEST_F(SessionTest, ASavedCorrelationTableIsWhereTheNextSessionBegins) {
  const std::string file = scratch_.path() / "table.json";
  std::vector<uint32_t> learnt;
  const auto popularity = [](Session& session) {
    const auto seen = session.pipeline().correlations().popularity(0);
    return std::vector<uint32_t>(seen.begin(), seen.end());
  };
  {
    Session session(tiny_model(), on_the_cpu());
    session.plan(prompts_workload());
    session.load();
    session.warm_up(Tokenizer::load(session.model().folder), sample_text());
    learnt = popularity(session);
    session.save_correlation_table(file);
  }
  EXPECT_GT(*std::max_element(learnt.begin(), learnt.end()), 0u);
  SessionOptions options = on_the_cpu();
  options.correlation_file = file;
  Session session(tiny_model(), options);
  session.plan(prompts_workload());
  session.load();
  EXPECT_EQ(popularity(session), learnt);
}

}  // namespace
}  // namespace klotski
