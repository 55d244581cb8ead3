#include <fmt/format.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/load.h"
#include "engine/verify.h"

namespace klotski {

namespace {

constexpr uint64_t kMaxReferenceBytes = 1 * kGiB;

struct Options {
  std::string model;
  std::string reference;
  std::string precision = "f32";
  std::string kernels = "cpu";
  bool json = false;
};

Json as_json(const std::vector<PromptReport>& reports, const VerifyTolerance& tolerance) {
  Json prompts = Json::array();
  bool passed = true;
  for (const PromptReport& report : reports) {
    passed = passed && report.passed;
    prompts.push_back(
        {{"prompt_tokens", report.prompt_tokens},
         {"logit_error", report.logit_error ? Json(*report.logit_error) : Json(nullptr)},
         {"positions", report.positions},
         {"positions_agreed", report.positions_agreed},
         {"greedy_tokens", report.greedy_tokens},
         {"greedy_agreed", report.greedy_agreed},
         {"wrong_tokens", report.wrong_tokens},
         {"passed", report.passed}});
  }
  return {{"passed", passed},
          {"precision", "f32"},
          {"logit_tolerance", tolerance.logits},
          {"margin", tolerance.margin},
          {"prompts", prompts}};
}

std::string as_text(const std::vector<PromptReport>& reports, const VerifyTolerance& tolerance) {
  std::string text;
  int64_t passed = 0;
  for (size_t i = 0; i < reports.size(); ++i) {
    const PromptReport& report = reports[i];
    passed += report.passed ? 1 : 0;
    text += fmt::format("prompt {:3}  {:5} tokens  ", i, report.prompt_tokens);
    text += report.logit_error ? fmt::format("logit error {:.2e}  ", *report.logit_error)
                               : "no reference logits   ";
    if (report.positions > 0) {
      text += fmt::format("positions {}/{}  ", report.positions_agreed, report.positions);
    }
    text += fmt::format("greedy {}/{}  {}\n", report.greedy_agreed, report.greedy_tokens,
                        report.passed ? "ok" : "WRONG");
  }
  return text + fmt::format(
                    "{} of {} prompts agree (f32: logits within {:.0e} relative, tokens "
                    "wherever the margin exceeds {:.0e})\n",
                    passed, reports.size(), tolerance.logits, tolerance.margin);
}

int verify_command(const Options& options) {
  const OpenedModel opened = open_model(options.model);
  const std::vector<ReferencePrompt> prompts = parse_reference(
      read_text_file(options.reference, kMaxReferenceBytes), options.reference, opened.description);
  int64_t tokens = 0;
  for (const ReferencePrompt& prompt : prompts) {
    tokens += static_cast<int64_t>(prompt.input.size() + prompt.greedy.size());
  }
  const uint64_t kv_bytes = static_cast<uint64_t>(PagedKvCache::pages_for(tokens) +
                                                  static_cast<int64_t>(prompts.size())) *
                            PagedKvCache::page_bytes(opened.description);
  const ResidentModel model = load_weights(opened, kv_bytes);
  const VerifyTolerance tolerance;
  std::vector<PromptReport> reports;
  {
    StatusLine status("verifying", "tokens");
    reports = verify(model, ops_named(options.kernels), prompts, tolerance,
                     [&](uint64_t done, uint64_t total) { status.update(done, total); });
  }
  const Json report = as_json(reports, tolerance);
  write_out(options.json ? report.dump(2) + "\n" : as_text(reports, tolerance));
  return report["passed"].get<bool>() ? 0 : 1;
}

}  // namespace

void add_verify_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "verify", "Compare a model's logits and greedy tokens with a reference file");
  command->add_option("MODEL", options->model, "Folder, bundled name or repository id")->required();
  command->add_option("--reference", options->reference, "A reference.json")
      ->required()
      ->type_name("FILE");
  command->add_option("--precision", options->precision, "Arithmetic of the products (default f32)")
      ->check(CLI::IsMember({"f32"}));
  add_kernels_option(*command, options->kernels);
  command->add_flag("--json", options->json, "Report as JSON");
  command->footer(
      "Exit code 0 only if every logit error is below the tolerance and every token agrees "
      "wherever "
      "the margin is clear;\n1 otherwise.");
  command->callback(
      [options, &action] { action = [options] { return verify_command(*options); }; });
}

}  // namespace klotski
