#include "session/comparison.h"

#include <ctime>

#include "base/cpu_limit.h"
#include "probe/history.h"

namespace klotski {

namespace {

std::vector<LaneFigures> lanes_of(const TimelineTotals& totals) {
  std::vector<LaneFigures> lanes;
  for (const Lane lane : totals.used_lanes()) {
    lanes.push_back({.lane = std::string(lane_name(lane)),
                     .busy_seconds = in_seconds(totals.lane(lane).busy),
                     .bytes = totals.lane(lane).bytes});
  }
  return lanes;
}

}  // namespace

RunFigures figures_of(const Prediction& prediction) {
  return {.seconds = prediction.seconds(),
          .prefill_seconds = prediction.prefill_seconds,
          .decode_seconds = prediction.decode_seconds,
          .prompt_tokens = static_cast<int64_t>(prediction.prompt_tokens),
          .generated_tokens = static_cast<int64_t>(prediction.generated_tokens),
          .lanes = lanes_of(prediction.totals)};
}

RunFigures figures_of(const Measurement& measured) {
  return {.seconds = measured.seconds,
          .prefill_seconds = measured.prefill_seconds,
          .decode_seconds = measured.decode_seconds,
          .prompt_tokens = measured.prompt_tokens,
          .generated_tokens = measured.generated_tokens,
          .lanes = lanes_of(measured.report.totals)};
}

std::string remember_run(const ComparedRun& run) {
  const Policy& policy = run.plan.policy;
  // Predictions count on no draft: a run with drafts would contradict what was measured.
  if (policy.group.draft_tokens > 0) return {};
  return remember(
      {.when = utc_text(std::time(nullptr)),
       .command = run.command,
       .model = run.opened.folder.filename().string(),
       .machine = machine_name(usable_cpus()),
       .strategy = describe_strategy(policy.strategy, policy.division.attends_elsewhere()),
       .micro_batch = policy.group.micro_batch,
       .micro_batches = policy.group.micro_batches,
       .ram_bytes = run.plan.memory.limit_bytes,
       .sequences = run.sequences,
       .planned = run.planned,
       .measured = run.measured});
}

}  // namespace klotski
