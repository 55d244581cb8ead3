#include "cli/plan_html.h"

#include <fmt/format.h>

#include "cli/session_output.h"
#include "planner/preview.h"
#include "report/plan_page.h"
#include "session/plan_report.h"

namespace klotski {

namespace {

// One expert by the rows that groups of 8, 64 and 512 sequences and the plan's own give it.
RooflinePlot expert_plot(const Planning& planning, const BlockModel& block,
                         const NamedLevels& named) {
  const PredictionInputs with = planning.prediction_inputs();
  const Policy& policy = planning.run().policy;
  RooflinePlot plot{
      .title = fmt::format("One expert, its weights brought from {} once a pass", named.lower),
      .upper_name = std::string(named.upper),
      .lower_name = std::string(named.lower),
      .levels = named.levels,
      .operations = {}};
  const double share = static_cast<double>(block.choices.experts_per_token) /
                       static_cast<double>(block.choices.popularity.size());
  for (const int64_t sequences : {int64_t{8}, int64_t{64}, int64_t{512}}) {
    if (sequences == policy.group.sequences()) continue;
    plot.operations.push_back(
        {fmt::format("group of {}", sequences),
         expert_operation(with, block.layer, share * static_cast<double>(sequences))});
  }
  plot.operations.push_back(
      {fmt::format("this plan: group of {}", policy.group.sequences()),
       expert_operation(with, block.layer, share * static_cast<double>(policy.group.sequences()))});
  return plot;
}

}  // namespace

void write_plan_html(std::ostream& out, const Planning& planning, const std::string& model) {
  const PlannedWork work = planning.work();
  PlanPage page{.title = "Plan for " + model,
                .facts = fmt::format("{}; {}; {} sequences of {} + {} tokens", model,
                                     plan_in_words(planning.run()), work.sequences,
                                     work.prompt_tokens, work.generated_tokens),
                .text = plan_text(planning),
                .rooflines = {},
                .spans = {},
                .placement = {}};
  const std::optional<BlockModel> block = planning.block();
  const std::optional<NamedLevels> levels = levels_of_weights(planning.prediction_inputs());
  if (block && levels) page.rooflines.push_back(expert_plot(planning, *block, *levels));
  Preview seen = preview(planning.prediction_inputs(), planning.run().policy, planning.work());
  page.spans = std::move(seen.spans);
  page.placement = std::move(seen.placement);
  write_plan_page(out, page);
}

}  // namespace klotski
