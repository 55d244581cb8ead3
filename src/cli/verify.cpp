#include <fmt/format.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/session_output.h"
#include "engine/verify.h"
#include "model/config.h"

namespace klotski {

namespace {

constexpr uint64_t kMaxReferenceBytes = 1 * kGiB;

struct VerifyOptions {
  std::string model;
  SessionFlags flags;
  std::string reference;
  bool json = false;
};

// A report with the precision and the rules that it was made by.
struct Verified {
  Precision precision = Precision::bf16;
  VerifyRules rules;
  VerifyReport report;
  bool exact_passed = false;  // the run in f32, by the rules for f32
  std::string_view fault;     // of the reference, which the run repeats; empty: none

  // A token that the run in f32 gets wrong has no excuse in what rounding does to the other run.
  bool passed() const { return report.passed && exact_passed; }
};

Json as_json(const PromptReport& report) {
  return {{"prompt_tokens", report.prompt_tokens},
          {"logit_error", report.logit_error ? Json(*report.logit_error) : Json(nullptr)},
          {"routing_tie", report.routing_tie},
          {"positions", report.positions},
          {"positions_agreed", report.positions_agreed},
          {"greedy_tokens", report.greedy_tokens},
          {"greedy_agreed", report.greedy_agreed},
          {"clear", report.clear},
          {"clear_agreed", report.clear_agreed},
          {"ties", report.ties},
          {"wrong_tokens", report.wrong_tokens},
          {"passed", report.passed}};
}

Json as_json(const Verified& verified) {
  Json prompts = Json::array();
  for (const PromptReport& report : verified.report.prompts) prompts.push_back(as_json(report));
  return {{"passed", verified.passed()},
          {"precision", precision_name(verified.precision)},
          {"logit_tolerance", verified.rules.logits},
          {"margin", verified.rules.margin},
          {"tie", verified.rules.tie},
          {"least_share", verified.rules.least_share},
          {"clear", verified.report.clear},
          {"clear_agreed", verified.report.clear_agreed},
          {"share", verified.report.share()},
          {"f32_passed", verified.exact_passed},
          {"repeated_fault", verified.fault},
          {"prompts", prompts}};
}

std::string as_text(const PromptReport& report) {
  std::string text = fmt::format("{:5} tokens  ", report.prompt_tokens);
  if (!report.logit_error) {
    text += "no reference logits   ";
  } else {
    text += fmt::format("logit error {:.2e}{}  ", *report.logit_error,
                        report.routing_tie ? " (routing tie)" : "");
  }
  if (report.positions > 0) {
    text += fmt::format("positions {}/{}  ", report.positions_agreed, report.positions);
  }
  text += fmt::format("greedy {}/{}  clear {}/{}  ", report.greedy_agreed, report.greedy_tokens,
                      report.clear_agreed, report.clear);
  if (report.ties > 0) text += fmt::format("routing ties {}  ", report.ties);
  if (report.wrong_tokens > 0) text += fmt::format("unexplained {}  ", report.wrong_tokens);
  return text + (report.passed ? "ok\n" : "WRONG\n");
}

std::string rules_in_words(const Verified& verified) {
  const VerifyRules& rules = verified.rules;
  if (verified.precision == Precision::f32) {
    return fmt::format(
        "f32: logits within {:.0e} relative, every token whose margin exceeds {:.0e}", rules.logits,
        rules.margin);
  }
  return fmt::format(
      "bf16: at least {:.0f} % of the tokens whose margin exceeds {:.0e}, the others where experts "
      "closer than {:.0e} changed places; elsewhere logits within {:.0e} relative",
      100.0 * rules.least_share, rules.margin, rules.tie, rules.logits);
}

std::string as_text(const Verified& verified) {
  const VerifyReport& report = verified.report;
  std::string text;
  int64_t passed = 0;
  for (size_t i = 0; i < report.prompts.size(); ++i) {
    passed += report.prompts[i].passed ? 1 : 0;
    text += fmt::format("prompt {:3}  {}", i, as_text(report.prompts[i]));
  }
  text += fmt::format(
      "{} of {} prompts agree, {} of {} clear tokens ({:.2f} %){}\n({})\n", passed,
      report.prompts.size(), report.clear_agreed, report.clear, 100.0 * report.share(),
      report.share() < verified.rules.least_share ? ": TOO FEW" : "", rules_in_words(verified));
  if (verified.precision != Precision::f32 && !verified.exact_passed) {
    text +=
        "WRONG: the run in f32, which gives margins and routing, differs from the reference: see "
        "--precision f32\n";
  }
  if (!verified.fault.empty()) text += fmt::format("Note: {}\n", verified.fault);
  return text;
}

std::vector<ObservedPrompt> run(Session& session, const std::vector<ReferencePrompt>& prompts,
                                const Workload& workload) {
  session.plan(workload);
  session.load();
  StatusLine status(fmt::format("verifying {}", precision_name(session.options().limits.precision)),
                    "tokens");
  return observe(session.pipeline(), prompts,
                 [&](uint64_t done, uint64_t total) { status.update(done, total); });
}

int verify_command(const VerifyOptions& options) {
  refuse_warm_up(options.flags, "the reference's tokens are all that is run");
  const auto model = open_model(options.model);
  const std::string reference = read_text_file(options.reference, kMaxReferenceBytes);
  const std::string_view fault =
      repeat_fault(model->description, reference_version(reference, options.reference));
  const std::vector<ReferencePrompt> prompts =
      parse_reference(reference, options.reference, model->description);
  SessionOptions wanted = options.flags.session_options();
  wanted.pipeline.router_gaps = true;
  const Precision precision = wanted.limits.precision;
  const Workload workload =
      observe_workload(prompts, model->description, precision == Precision::f32 ? 1 : 2);

  // One session at a time, so that each has all of the memory. The session in f32 is the CPU's,
  // unless it is the one to be verified: a device's results are judged by something else.
  SessionOptions in_f32 = wanted;
  in_f32.limits.precision = Precision::f32;
  if (precision != Precision::f32) in_f32 = on_cpu(std::move(in_f32));
  const SessionEvents events = events_on_stderr(options.flags);
  std::optional<Session> session(std::in_place, model, std::move(in_f32), events);
  const std::vector<ObservedPrompt> exact = run(*session, prompts, workload);
  const VerifyRules exact_rules = verify_rules(Precision::f32);
  const VerifyReport exact_report = verify(prompts, exact, exact, exact_rules);
  Verified verified{Precision::f32, exact_rules, exact_report, exact_report.passed, fault};
  if (precision != Precision::f32) {
    session.reset();
    session.emplace(model, std::move(wanted), events);
    verified.precision = precision;
    verified.rules = verify_rules(precision);
    verified.report = verify(prompts, exact, run(*session, prompts, workload), verified.rules);
  }
  write_out(options.json ? as_json(verified).dump(2) + "\n" : as_text(verified));
  write_session_files(options.flags, *session);
  return verified.passed() ? 0 : 1;
}

}  // namespace

void add_verify_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* command = app.add_subcommand(
      "verify", "Compare a model's logits and greedy tokens with a reference file");
  command->add_option("MODEL", options->model, "Folder, GGUF file, bundled name or repository id")
      ->required();
  command
      ->add_option("--reference", options->reference,
                   "File with the tokens and logits to compare with (reference.json)")
      ->required()
      ->type_name("FILE");
  command->add_flag("--json", options->json, "Print the report as JSON");
  add_session_flags(*command, options->flags);
  command->footer(
      "Runs on the reference's own tokens. Exit code 0 if all of this holds, 1 otherwise.\n"
      "--precision f32: logits within 1e-4 relative; every token whose margin (best logit over\n"
      "second) exceeds 1e-3.\n"
      "Default, bf16: at least 98 % of the tokens whose margin exceeds 5e-2, and before or at "
      "each\n"
      "of the others, experts whose router scores are closer than 2e-2 changed places; where none\n"
      "did, logits within 2e-2 relative. A run in f32, made first, tells the experts and the\n"
      "margins that the reference lacks; it must hold to the rules for f32.");
  command->callback(
      [options, &action] { action = [options] { return verify_command(*options); }; });
}

}  // namespace klotski
