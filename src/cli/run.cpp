#include <fmt/format.h>

#include "base/error.h"
#include "base/numbers.h"
#include "cli/command.h"
#include "cli/conversation.h"
#include "cli/generation.h"
#include "cli/sampling_flags.h"
#include "cli/session_output.h"
#include "engine/generation_defaults.h"
#include "engine/prompt.h"
#include "session/model_tokenizer.h"

namespace klotski {

namespace {

int run_once(const TextRun& run, const std::string& prompt) {
  const RunOptions& options = run.options;
  std::vector<TokenId> tokens;
  if (options.chat) {
    tokens =
        encode_chat(run.tokenizer, template_of(run),
                    chat_context(run.config, Conversation(options.system).messages(prompt, 0)));
  } else {
    tokens = encode_text(run.tokenizer, run.config, run.session.description(), prompt,
                         options.parse_special);
  }
  Request request = request_for(run, std::move(tokens));
  prepare(run, Engine::workload(run.session.description(), request));
  const Outcome outcome = generate(run, std::move(request), {.text = [&](std::string_view text) {
                                     if (!options.json) write_out(text);
                                   }});
  if (options.json) {
    const Json report = {
        {"text", outcome.text},
        {"finish_reason", outcome.finish},
        {"prompt_tokens", outcome.prompt_tokens},
        {"completion_tokens", outcome.tokens},
        {"drafted_tokens", outcome.drafts.drafted},
        {"accepted_tokens", outcome.drafts.accepted},
        {"lossy", losses(options.flags.options.limits, weight_types(run.session.model()))},
        {"seconds", outcome.seconds}};
    write_out(report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  } else {
    write_out("\n");
    if (err_is_terminal() || options.flags.verbose) write_err(outcome_line(outcome));
  }
  write_session_files(options.flags, run.session);
  return 0;
}

void check_options(const RunOptions& options) {
  const bool interactive = !options.prompt && options.file.empty();
  const auto refuse_if = [](bool wrong, std::string_view message) {
    if (wrong) fail(ErrorKind::usage, "{}", message);
  };
  refuse_if(options.prompt && !options.file.empty(), "-p and -f: expected at most one of them");
  refuse_if(options.json && interactive, "--json: expected a prompt (-p or -f) with it");
  refuse_if(!options.system.empty() && !options.chat && !interactive,
            "--system: expected --chat with it");
  refuse_if(
      options.parse_special && options.chat,
      "--parse-special: expected a plain prompt; the template writes a chat's special tokens");
  for (const std::string& stop : options.stop_strings) {
    refuse_if(stop.empty(), "--stop: expected some text, found none");
  }
}

int run_command(RunOptions options) {
  check_options(options);
  std::optional<std::string> prompt = options.prompt;
  if (!options.file.empty()) prompt = read_argument_file(options.file, "-f", kMaxPromptBytes);
  if (prompt && prompt->empty()) fail(ErrorKind::usage, "the prompt is empty; give some text");
  const auto model = open_model(options.model);
  const Tokenizer tokenizer = load_tokenizer(model->folder);
  const TokenizerConfig config = load_tokenizer_config(model->folder);
  if (!prompt && model->description.encoder) {
    fail(ErrorKind::usage,
         "the model has an encoder and does not chat; give its input with -p or -f");
  }
  options.chat = options.chat || (!prompt && config.chat_template.has_value());
  Session session(model, options.flags.session_options(), events_on_stderr(options.flags));
  TextRun run{.options = options,
              .session = session,
              .tokenizer = tokenizer,
              .config = config,
              .sampling = suggested_sampling(model->folder),
              .stop_tokens = {}};
  for (const auto& change : options.sampling) change(run.sampling);
  if (!options.ignore_end) run.stop_tokens = model->description.end_tokens;
  run.stop_tokens.insert(run.stop_tokens.end(), options.stop_ids.begin(), options.stop_ids.end());
  return prompt ? run_once(run, *prompt) : run_interactive(run);
}

std::vector<TokenId> token_ids(const std::vector<std::string>& values) {
  std::vector<TokenId> ids;
  for (const std::string& text : values) {
    const auto id = parse_int(text);
    if (!id || *id < 0 || *id > INT32_MAX) {
      fail(ErrorKind::usage, "--stop-id: expected a token id, found {}", in_quotes(text));
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

}  // namespace

void add_run_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand(
      "run", "Generate text from a prompt; without a prompt, chat interactively");
  add_model_flags(*command, options->model);
  command
      ->add_option("-p,--prompt", options->prompt,
                   "Text to continue; of a model with an encoder, its input")
      ->type_name("TEXT");
  command
      ->add_option("-f,--file", options->file,
                   "Read the prompt from this file; - is standard input")
      ->type_name("FILE");
  command->add_flag("--chat", options->chat,
                    "Take the prompt as a user's message and apply the model's chat template");
  command->add_option("--system", options->system, "System message before the user's, in a chat")
      ->type_name("TEXT");
  command
      ->add_option("--target-language", options->target_language,
                   "Language that a translating model writes, as the code of its token: fra_Latn")
      ->type_name("CODE");
  add_integer(*command, "-n,--max-tokens", {1, 1 << 30}, "Generate at most N tokens (default 256)",
              [options](int64_t value) { options->max_tokens = value; });
  add_sampling_flags(*command, options->sampling);
  command
      ->add_option("--stop", options->stop_strings,
                   "Stop before this text is generated; may be given several times")
      ->type_name("TEXT")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option_function<std::vector<std::string>>(
          "--stop-id", [options](const auto& values) { options->stop_ids = token_ids(values); },
          "Stop at the token with this id; may be given several times")
      ->type_name("N")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_flag("--ignore-end", options->ignore_end, "Do not stop at the model's end tokens");
  command->add_flag(
      "--parse-special", options->parse_special,
      "Turn the text of special tokens in the prompt, such as <s>, into those tokens");
  command->add_flag("--json", options->json, "Print one JSON object instead of streaming text");
  add_session_flags(*command, options->flags);
  command->callback([options, &action] { action = [options] { return run_command(*options); }; });
}

}  // namespace klotski
