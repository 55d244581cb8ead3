#include "session/comparison.h"

#include <gtest/gtest.h>

#include "base/cpu_limit.h"
#include "probe/history.h"
#include "session/testing.h"
#include "weights/testing.h"

namespace klotski {
namespace {

TEST(ComparisonTest, FiguresOfAMeasurement) {
  Measurement measured;
  measured.seconds = 3.0;
  measured.prefill_seconds = 1.0;
  measured.decode_seconds = 2.0;
  measured.prompt_tokens = 40;
  measured.generated_tokens = 9;
  const RunFigures figures = figures_of(measured);
  EXPECT_EQ(figures.seconds, 3.0);
  EXPECT_EQ(figures.prefill_seconds, 1.0);
  EXPECT_EQ(figures.decode_seconds, 2.0);
  EXPECT_EQ(figures.prompt_tokens, 40);
  EXPECT_EQ(figures.generated_tokens, 9);
}

TEST(ComparisonTest, RunsAreRemembered) {
  const testing_files::ScratchFolder scratch;
  const testing_files::ScopedEnvironment cache("KLOTSKI_CACHE", scratch.path().c_str());
  const auto model = testing::tiny_model();
  SessionOptions options;
  options.device = "cpu";
  Session session(model, options);
  const RunPlan& plan = session.plan({.tokens_per_sequence = 8, .prompt_tokens = 4});
  RunFigures planned;
  planned.seconds = 1.0;
  RunFigures measured;
  measured.seconds = 2.0;
  const std::string why_not = remember_run({.command = "bench",
                                            .opened = *model,
                                            .plan = plan,
                                            .sequences = 7,
                                            .planned = planned,
                                            .measured = measured});
  EXPECT_EQ(why_not, "");
  const std::vector<RunRecord> runs = remembered(machine_name(usable_cpus()));
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].command, "bench");
  EXPECT_EQ(runs[0].model, "tiny-mixtral");
  EXPECT_EQ(runs[0].sequences, 7);
  EXPECT_EQ(runs[0].planned.seconds, 1.0);
  EXPECT_EQ(runs[0].measured.seconds, 2.0);
}

}  // namespace
}  // namespace klotski
