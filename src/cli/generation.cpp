#include "cli/generation.h"

#include <chrono>

#include "base/error.h"
#include "cli/command.h"
#include "cli/session_output.h"
#include "engine/text_stream.h"

namespace klotski {

void prepare(const Generation& run, const Workload& workload) {
  // On the CPU one sequence leaves nothing to choose. With a GPU the plan turns on the times of an
  // expert over its link, on the GPU and on the CPU.
  const PlanBy by = run.session.on_device() ? PlanBy::prediction : PlanBy::rules;
  run.session.plan(workload, by);
  run.session.load();
  warm_up(run.options.flags, run.session, run.tokenizer);
}

Request request_for(const Generation& run, std::vector<TokenId> prompt) {
  return {.prompt = std::move(prompt),
          .sampling = run.sampling,
          .max_tokens = run.options.max_tokens,
          .stop_tokens = run.stop_tokens};
}

Outcome generate(const Generation& run, Request request,
                 const std::function<void(std::string_view)>& emit) {
  Engine& engine = run.session.engine();
  const auto start = std::chrono::steady_clock::now();
  // An answer in a chat begins a text of its own; a continuation does not.
  TextStream stream(run.tokenizer, run.options.stop_strings,
                    run.options.chat ? std::span<const TokenId>() : request.prompt);
  Outcome outcome;
  const auto hand_out = [&](const std::string& text) {
    outcome.text += text;
    if (!text.empty()) emit(text);
  };
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  const SequenceId id = engine.submit(std::move(request));
  std::optional<StatusLine> status(std::in_place, "reading the prompt", "tokens");
  while (!engine.idle()) {
    if (status) {
      const int64_t done = prompt_tokens - engine.pending_tokens();
      status->update(static_cast<uint64_t>(done), static_cast<uint64_t>(prompt_tokens));
    }
    for (const Progress& progress : engine.step()) {
      status.reset();  // the first token is there
      if (progress.finish == Finish::failed) fail(progress.error_kind, "{}", progress.error);
      ++outcome.tokens;
      outcome.finish = progress.finish == Finish::length ? "length" : "stop";
      if (progress.finish == Finish::stop_token) continue;  // an end token is not text
      hand_out(stream.push(progress.token));
      if (stream.stopped()) {
        outcome.finish = "stop";
        engine.cancel(id);
      }
    }
  }
  hand_out(stream.finish());
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

ChatTemplate template_of(const Generation& run) {
  if (!run.config.chat_template) {
    fail(ErrorKind::usage, "--chat: {} has no chat template; leave --chat out to continue a text",
         path_in_quotes(run.session.model().folder));
  }
  return ChatTemplate::parse(*run.config.chat_template, "chat template");
}

OrderedJson first_messages(const RunOptions& options) {
  OrderedJson messages = OrderedJson::array();
  if (!options.system.empty()) {
    messages.push_back({{"role", "system"}, {"content", options.system}});
  }
  return messages;
}

}  // namespace klotski
