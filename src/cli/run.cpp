#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "base/numbers.h"
#include "cli/command.h"
#include "cli/load.h"
#include "cli/pipeline_options.h"
#include "engine/engine.h"
#include "engine/generation_defaults.h"
#include "engine/prompt.h"
#include "engine/text_stream.h"

namespace klotski {

namespace {

constexpr uint64_t kMaxPromptBytes = 256 * kMiB;
constexpr int64_t kChatPositions =
    8192;  // context of an interactive chat, where the model has more

struct RunOptions {
  ModelChoice model;
  std::shared_ptr<PipelineFlags> pipeline = std::make_shared<PipelineFlags>();
  std::optional<std::string> prompt;
  std::string file;
  std::string system;
  bool chat = false;
  bool parse_special = false;
  bool ignore_end = false;
  bool json = false;
  int64_t max_tokens = 256;
  // Applied over what the model suggests, in the order of the command line.
  std::vector<std::function<void(SamplingOptions&)>> sampling;
  std::vector<std::string> stop_strings;
  std::vector<TokenId> stop_ids;
};

// Everything a run needs once the model is loaded.
struct Session {
  const RunOptions& options;
  const OpenedModel& opened;
  const Tokenizer& tokenizer;
  const TokenizerConfig& config;
  SamplingOptions sampling;
  std::vector<TokenId> stop_tokens;
};

// On the CPU one sequence leaves nothing to choose; beside a GPU it matters what each takes.
std::unique_ptr<PreparedModel> prepare_session(const Session& session, const Workload& workload) {
  const PipelineFlags& flags = *session.options.pipeline;
  MaybeForesight planned;
  if (target_of(flags).device) planned = foresight_for(session.opened, flags);
  auto model = prepare_model(session.opened, flags, workload, planned.foresight.get());
  write_err(planned.why_none);
  return model;
}

struct Outcome {
  std::string text;
  int64_t tokens = 0;
  std::string finish;
  double seconds = 0.0;
};

Request request_for(const Session& session, std::vector<TokenId> prompt) {
  return {.prompt = std::move(prompt),
          .sampling = session.sampling,
          .max_tokens = session.options.max_tokens,
          .stop_tokens = session.stop_tokens};
}

// Runs one request to its end, handing text out as it becomes certain.
Outcome generate(const Session& session, Engine& engine, Request request,
                 const std::function<void(std::string_view)>& emit) {
  const auto start = std::chrono::steady_clock::now();
  // An answer in a chat begins a text of its own; a continuation does not.
  TextStream stream(session.tokenizer, session.options.stop_strings,
                    session.options.chat ? std::span<const TokenId>() : request.prompt);
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

ChatTemplate template_of(const Session& session) {
  if (!session.config.chat_template) {
    fail(ErrorKind::usage, "--chat: {} has no chat template; leave --chat out to continue a text",
         path_in_quotes(session.opened.folder));
  }
  return ChatTemplate::parse(*session.config.chat_template, "chat template");
}

OrderedJson first_messages(const RunOptions& options) {
  OrderedJson messages = OrderedJson::array();
  if (!options.system.empty()) {
    messages.push_back({{"role", "system"}, {"content", options.system}});
  }
  return messages;
}

int run_once(const Session& session, const std::string& prompt) {
  const RunOptions& options = session.options;
  std::vector<TokenId> tokens;
  if (options.chat) {
    OrderedJson messages = first_messages(options);
    messages.push_back({{"role", "user"}, {"content", prompt}});
    tokens = encode_chat(session.tokenizer, template_of(session),
                         chat_context(session.config, messages));
  } else {
    tokens = encode_text(session.tokenizer, session.config, session.opened.description, prompt,
                         options.parse_special);
  }
  const auto prompt_tokens = static_cast<int64_t>(tokens.size());
  Request request = request_for(session, std::move(tokens));
  const auto model =
      prepare_session(session, Engine::workload(session.opened.description, request));
  warm_up(*options.pipeline, *model, session.tokenizer);
  Engine engine(model->pipeline());
  const Outcome outcome = generate(session, engine, std::move(request), [&](std::string_view text) {
    if (!options.json) write_out(text);
  });
  if (options.json) {
    const Json report = {{"text", outcome.text},
                         {"finish_reason", outcome.finish},
                         {"prompt_tokens", prompt_tokens},
                         {"completion_tokens", outcome.tokens},
                         {"lossy", losses(*options.pipeline)},
                         {"seconds", outcome.seconds}};
    write_out(report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  } else {
    write_out("\n");
    if (err_is_terminal()) {
      write_err(fmt::format("{} prompt tokens, {} generated in {:.2f} s\n", prompt_tokens,
                            outcome.tokens, outcome.seconds));
      write_err(format_summary(*model));
    }
  }
  write_pipeline_files(*options.pipeline, *model);
  return 0;
}

// What was said so far: messages for a template, or a text to continue.
struct Conversation {
  OrderedJson messages;
  std::string text;
};

std::vector<TokenId> encode_line(const Session& session, const ChatTemplate* chat_template,
                                 Conversation& conversation, const std::string& line) {
  if (chat_template) {
    conversation.messages.push_back({{"role", "user"}, {"content", line}});
    return encode_chat(session.tokenizer, *chat_template,
                       chat_context(session.config, conversation.messages));
  }
  conversation.text += line;
  return encode_text(session.tokenizer, session.config, session.opened.description,
                     conversation.text, session.options.parse_special);
}

// Answers one line within `positions`; throws without having changed the conversation for good.
void answer(const Session& session, Engine& engine, const ChatTemplate* chat_template,
            Conversation& conversation, const std::string& line, int64_t positions) {
  Conversation next = conversation;
  Request request = request_for(session, encode_line(session, chat_template, next, line));
  const int64_t room = positions - static_cast<int64_t>(request.prompt.size());
  if (room < 1) {
    fail(ErrorKind::usage, "the conversation would have {} tokens, the context holds {}",
         request.prompt.size(), positions);
  }
  request.max_tokens = std::min(request.max_tokens, room);
  const Outcome outcome =
      generate(session, engine, std::move(request), [](std::string_view more) { write_out(more); });
  write_out("\n");
  next.messages.push_back({{"role", "assistant"}, {"content", outcome.text}});
  next.text += outcome.text + "\n";
  conversation = std::move(next);
}

// A conversation line by line. A line that cannot be answered is reported and left out.
int run_interactive(const Session& session) {
  const ModelDescription& description = session.opened.description;
  std::optional<ChatTemplate> chat_template;
  if (session.options.chat) chat_template = template_of(session);
  const int64_t positions = std::min(description.max_positions, kChatPositions);
  const auto model = prepare_session(session, {.tokens_per_sequence = positions,
                                               .prompt_tokens = positions,
                                               .generated_tokens = positions / 2});
  warm_up(*session.options.pipeline, *model, session.tokenizer);
  Engine engine(model->pipeline());
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  if (terminal) {
    write_err(chat_template ? "Chat: a line is a message; end with Ctrl-D.\n"
                            : "This model has no chat template: it continues what you write. End "
                              "with Ctrl-D.\n");
  }
  Conversation conversation{.messages = first_messages(session.options), .text = ""};
  LineReader lines(kMaxPromptBytes);
  while (true) {
    if (terminal) write_err("> ");
    const std::optional<std::string> line = lines.next();
    if (!line) break;
    if (line->empty()) continue;
    try {
      answer(session, engine, chat_template ? &*chat_template : nullptr, conversation, *line,
             positions);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      write_err(fmt::format("klotski: {}\n", one_line(error.what())));
    }
  }
  if (terminal) write_err("\n");
  write_pipeline_files(*session.options.pipeline, *model);
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
  const OpenedModel opened = open_model(options.model);
  const Tokenizer tokenizer = Tokenizer::load(opened.folder);
  const TokenizerConfig config = TokenizerConfig::load(opened.folder);
  options.chat = options.chat || (!prompt && config.chat_template.has_value());
  Session session{.options = options,
                  .opened = opened,
                  .tokenizer = tokenizer,
                  .config = config,
                  .sampling = suggested_sampling(opened.folder),
                  .stop_tokens = {}};
  for (const auto& apply : options.sampling) apply(session.sampling);
  if (!options.ignore_end) session.stop_tokens = opened.description.end_tokens;
  session.stop_tokens.insert(session.stop_tokens.end(), options.stop_ids.begin(),
                             options.stop_ids.end());
  return prompt ? run_once(session, *prompt) : run_interactive(session);
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

void add_sampling_flags(CLI::App& command, RunOptions& options) {
  const auto number = [&](const char* name, Bounds<double> bounds, const char* help,
                          double SamplingOptions::*field) {
    add_number(command, name, bounds, help, [&options, field](double value) {
      options.sampling.push_back([=](SamplingOptions& sampling) { sampling.*field = value; });
    });
  };
  number("--temperature", {0.0, 100.0},
         "Randomness; 0 takes the most likely token (default: the model's suggestion, else 0)",
         &SamplingOptions::temperature);
  number("--top-p", {0.0, 1.0}, "Choose among the most likely tokens that hold this share",
         &SamplingOptions::top_p);
  number("--min-p", {0.0, 1.0}, "Choose among tokens at least this share as likely as the best",
         &SamplingOptions::min_p);
  number("--repetition-penalty", {0.01, 100.0}, "Divide the logit of every token seen",
         &SamplingOptions::repetition_penalty);
  number("--presence-penalty", {-100.0, 100.0}, "Subtract once for a token generated before",
         &SamplingOptions::presence_penalty);
  number("--frequency-penalty", {-100.0, 100.0}, "Subtract for each time a token was generated",
         &SamplingOptions::frequency_penalty);
  add_integer(
      command, "--top-k", {0, 1 << 24}, "Choose among the N most likely tokens; 0: all",
      [&options](int64_t value) {
        options.sampling.push_back([=](SamplingOptions& sampling) { sampling.top_k = value; });
      });
  add_integer(command, "--seed", {0, INT64_MAX}, "Seed of the randomness (default 0)",
              [&options](int64_t value) {
                options.sampling.push_back([=](SamplingOptions& sampling) {
                  sampling.seed = static_cast<uint64_t>(value);
                });
              });
}

}  // namespace

void add_run_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand(
      "run", "Generate text from a prompt; without a prompt, chat interactively");
  add_model_option(*command, options->model);
  command->add_option("-p,--prompt", options->prompt, "The prompt")->type_name("TEXT");
  command->add_option("-f,--file", options->file, "Read the prompt from a file; - is stdin")
      ->type_name("FILE");
  command->add_flag("--chat", options->chat, "The prompt is a message: apply the chat template");
  command->add_option("--system", options->system, "System message for --chat")->type_name("TEXT");
  add_integer(*command, "-n,--max-tokens", {1, 1 << 30}, "Most tokens to generate (default 256)",
              [options](int64_t value) { options->max_tokens = value; });
  add_sampling_flags(*command, *options);
  command->add_option("--stop", options->stop_strings, "Stop before this text; may be repeated")
      ->type_name("TEXT")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option_function<std::vector<std::string>>(
          "--stop-id", [options](const auto& values) { options->stop_ids = token_ids(values); },
          "Stop at this token; may be repeated")
      ->type_name("N")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_flag("--ignore-end", options->ignore_end, "Go on past the model's end tokens");
  command->add_flag("--parse-special", options->parse_special,
                    "Special-token text in the prompt becomes those tokens");
  command->add_flag("--json", options->json, "Print one JSON object instead of streaming text");
  add_pipeline_flags(*command, options->pipeline);
  command->callback([options, &action] { action = [options] { return run_command(*options); }; });
}

}  // namespace klotski
