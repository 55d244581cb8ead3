#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/numbers.h"
#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/plan_html.h"
#include "cli/session_output.h"
#include "session/plan_report.h"

namespace klotski {

namespace {

struct PlanOptions {
  ModelFlags model;
  SessionFlags flags;
  PlannedWork work{.sequences = 64, .prompt_tokens = 512, .generated_tokens = 32};
  bool json = false;
  std::string html_file;
};

// "prompt=512,gen=32,sequences=64", any of them left out.
void read_workload(const std::string& text, PlannedWork& work) {
  constexpr int64_t kMost = 1 << 20;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    const size_t equals = std::min(part.find('='), part.size());
    const std::string name = part.substr(0, equals);
    int64_t* field = name == "prompt"      ? &work.prompt_tokens
                     : name == "gen"       ? &work.generated_tokens
                     : name == "sequences" ? &work.sequences
                                           : nullptr;
    const std::optional<int64_t> value = parse_int(part.substr(std::min(equals + 1, part.size())));
    if (!field || !value || *value < 1 || *value > kMost) {
      fail(ErrorKind::usage,
           "--workload: expected prompt=N,gen=N,sequences=N with N from 1 to {}, found {}", kMost,
           in_quotes(part));
    }
    *field = *value;
    at = end + 1;
  }
}

void check(const PlanOptions& options, const ModelDescription& model) {
  refuse_run_flags(options.flags, "a plan runs nothing");
  const int64_t tokens = options.work.prompt_tokens + options.work.generated_tokens;
  if (tokens > model.max_positions) {
    fail(ErrorKind::usage,
         "--workload: {} tokens of prompt and continuation, the model has room for {}", tokens,
         model.max_positions);
  }
}

int plan_command(const PlanOptions& options) {
  const auto model = open_model(options.model);
  check(options, model->description);
  const Workload workload{
      .sequences = options.work.sequences,
      .tokens_per_sequence = options.work.prompt_tokens + options.work.generated_tokens,
      .prompt_tokens = options.work.prompt_tokens,
      .generated_tokens = options.work.generated_tokens};
  Session session(model, options.flags.session_options(), events_on_stderr(options.flags));
  const Planning planning = session.explain(workload);
  if (!options.html_file.empty()) {
    write_argument_file(options.html_file, "--html", [&](std::ostream& out) {
      write_plan_html(out, planning, model->folder.filename().string());
    });
  }
  write_out(options.json ? plan_json(planning).dump(2) + "\n" : plan_text(planning));
  return 0;
}

}  // namespace

void add_plan_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command = app.add_subcommand(
      "plan", "Measure the machine, choose how to run a workload and predict what it takes");
  add_model_flags(*command, options->model);
  command
      ->add_option_function<std::string>(
          "--workload", [options](const std::string& text) { read_workload(text, options->work); },
          "Sequences to plan for, and tokens of each prompt and answer (default "
          "prompt=512,gen=32,sequences=64)")
      ->type_name("prompt=N,gen=N,sequences=N");
  command->add_flag("--json", options->json, "Print the plan as JSON");
  add_output_file(
      *command, "--html", "FILE.html",
      "Write a page with the plan, its rooflines, a predicted layer and the weights that stay "
      "in memory",
      options->html_file);
  add_session_flags(*command, options->flags);
  command->callback([options, &action] { action = [options] { return plan_command(*options); }; });
}

}  // namespace klotski
