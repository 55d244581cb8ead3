#include "cli/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "cli/command.h"
#include "cli/session_output.h"
#include "engine/prompt.h"
#include "engine/text_stream.h"

namespace klotski {

void prepare(const TextRun& run, const Workload& workload) {
  // On the CPU one sequence leaves nothing to choose. With a GPU the plan turns on the times of an
  // expert over its link, on the GPU and on the CPU.
  const PlanBy by = run.session.on_device() ? PlanBy::prediction : PlanBy::rules;
  // The drawing of a timeline shows the prediction beside the run.
  if (!run.options.flags.timeline_file.empty()) run.session.foresight_or_none();
  run.session.plan(workload, by);
  run.session.load();
  warm_up(run.options.flags, run.session, run.tokenizer);
}

Request request_for(const TextRun& run, std::vector<TokenId> prompt) {
  return {.prompt = std::move(prompt),
          .sampling = run.sampling,
          .max_tokens = run.options.max_tokens,
          .stop_tokens = run.stop_tokens,
          .decoder_prompt = language_prompt(run.tokenizer, run.session.description(),
                                            run.options.target_language)};
}

double Outcome::tokens_per_second() const {
  // Decoding begins with the first token, which belongs to the prompt's last pass.
  const double decoding = seconds - first_token_seconds;
  if (tokens > 1 && decoding > 0.0) return static_cast<double>(tokens - 1) / decoding;
  return seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0;
}

std::string outcome_line(const Outcome& outcome) {
  std::string line = fmt::format(
      "{} + {} tokens in {:.2f} s, {:.1f} tokens/s, first after {:.2f} s", outcome.prompt_tokens,
      outcome.tokens, outcome.seconds, outcome.tokens_per_second(), outcome.first_token_seconds);
  if (outcome.experts.requests() > 0) {
    line += fmt::format(", {:.0f} % of experts in memory", 100.0 * outcome.experts.hit_share());
  }
  if (outcome.drafts.drafted > 0) {
    line += fmt::format(", {} of {} drafted tokens accepted", outcome.drafts.accepted,
                        outcome.drafts.drafted);
  }
  return line + "\n";
}

Outcome generate(const TextRun& run, Request request, const AnswerListener& listener) {
  Engine& engine = run.session.engine();
  const CacheCounters experts_before = run.session.report().experts;
  const auto start = std::chrono::steady_clock::now();
  const auto seconds_since_start = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  // An answer in a chat and the output of a decoder with an encoder begin a text of their own; a
  // continuation does not.
  const bool begins = run.options.chat || run.session.description().encoder;
  TextStream stream(run.tokenizer, run.options.stop_strings,
                    begins ? std::span<const TokenId>() : request.prompt);
  Outcome outcome;
  const auto hand_out = [&](const std::string& text) {
    outcome.text += text;
    if (!text.empty()) listener.text(text);
  };
  outcome.prompt_tokens = static_cast<int64_t>(request.prompt.size());
  const SequenceId id = engine.submit(std::move(request));
  const auto end_early = [&](const char* finish) {
    outcome.finish = finish;
    engine.cancel(id);
  };
  std::optional<StatusLine> status(std::in_place, "reading the prompt", "tokens");
  while (!engine.idle()) {
    if (status) {
      const int64_t done = std::max<int64_t>(0, outcome.prompt_tokens - engine.pending_tokens());
      status->update(static_cast<uint64_t>(done), static_cast<uint64_t>(outcome.prompt_tokens));
    }
    for (const Progress& progress : engine.step()) {
      status.reset();               // the first token is there
      if (stream.stopped()) break;  // progress of the same pass behind the stop text
      if (progress.finish == Finish::failed) fail(progress.error_kind, "{}", progress.error);
      outcome.drafts = progress.drafts;
      if (++outcome.tokens == 1) outcome.first_token_seconds = seconds_since_start();
      outcome.finish = progress.finish == Finish::length ? "length" : "stop";
      if (progress.finish == Finish::stop_token) continue;  // an end token is not text
      hand_out(stream.push(progress.token));
      if (stream.stopped()) end_early("stop");
    }
    if (!engine.idle() && listener.stop_asked && listener.stop_asked()) end_early("interrupted");
  }
  status.reset();
  hand_out(stream.finish());
  outcome.seconds = seconds_since_start();
  outcome.experts = run.session.report().experts - experts_before;
  return outcome;
}

ChatTemplate template_of(const TextRun& run) {
  if (!run.config.chat_template) {
    fail(ErrorKind::usage, "--chat: {} has no chat template; leave --chat out to continue a text",
         path_in_quotes(run.session.model().folder));
  }
  return ChatTemplate::parse(*run.config.chat_template, "chat template");
}

}  // namespace klotski
