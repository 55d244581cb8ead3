#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "base/error.h"
#include "base/new_file.h"
#include "cli/chat_commands.h"
#include "cli/chat_input.h"
#include "cli/command.h"
#include "cli/conversation.h"
#include "cli/generation.h"
#include "cli/session_output.h"
#include "cli/signals.h"
#include "engine/prompt.h"

namespace klotski {

namespace {

constexpr int64_t kChatPositions = 8192;  // context of a chat, where the model has more
// Exchanges are left out of a prompt while less than this share of the context is free for the
// answer: 1 / kAnswerShare.
constexpr int64_t kAnswerShare = 4;

class Chat {
 public:
  Chat(const TextRun& run, int64_t positions);

  bool has_template() const { return template_.has_value(); }
  // Answers one message on standard output; throws without having changed the conversation.
  void answer(const std::string& question);
  void obey(const ChatCommand& command);

 private:
  std::vector<TokenId> encode(const std::string& question, size_t left_out) const;
  void set_system(const std::string& text);
  void save(const std::string& file);

  const TextRun& run_;
  int64_t positions_;
  std::optional<ChatTemplate> template_;
  Conversation conversation_;
  std::string saved_file_;  // this chat may write it again
};

Chat::Chat(const TextRun& run, int64_t positions)
    : run_(run), positions_(positions), conversation_(run.options.system) {
  if (run.options.chat) template_ = template_of(run);
}

std::vector<TokenId> Chat::encode(const std::string& question, size_t left_out) const {
  if (template_) {
    return encode_chat(run_.tokenizer, *template_,
                       chat_context(run_.config, conversation_.messages(question, left_out)));
  }
  return encode_text(run_.tokenizer, run_.config, run_.session.description(),
                     conversation_.text(question, left_out), run_.options.parse_special);
}

void Chat::answer(const std::string& question) {
  const ContextRoom room{.positions = positions_,
                         .answer = std::min(run_.options.max_tokens, positions_ / kAnswerShare)};
  FittedPrompt prompt = fit_prompt([&](size_t left_out) { return encode(question, left_out); },
                                   conversation_.remembered(), room);
  if (prompt.left_out > 0) {
    write_err(fmt::format(
        "klotski: the context of {} tokens is full: the model no longer sees the {}\n", positions_,
        prompt.left_out == 1 ? "oldest exchange"
                             : fmt::format("{} oldest exchanges", prompt.left_out)));
    conversation_.leave_out(prompt.left_out);
  }
  const int64_t free = positions_ - static_cast<int64_t>(prompt.tokens.size());
  Request request = request_for(run_, std::move(prompt.tokens));
  request.max_tokens = std::min(request.max_tokens, free);
  const Outcome outcome = generate(run_, std::move(request),
                                   {.text = [](std::string_view more) { write_out(more); },
                                    .stop_asked = [] { return signal_asking_to_stop() != 0; }});
  write_out("\n");
  conversation_.add({.question = question, .answer = outcome.text});
  if (chat_has_terminal() || run_.options.flags.verbose) {
    write_err((outcome.finish == "interrupted" ? "stopped: " : "") + outcome_line(outcome));
  }
}

void Chat::set_system(const std::string& text) {
  if (!template_) {
    write_err("klotski: /system: this model has no chat template, so no system message\n");
    return;
  }
  if (!text.empty()) conversation_.set_system_message(text);
  const std::string& now = conversation_.system_message();
  write_err(now.empty() ? "there is no system message; /system TEXT sets one\n"
                        : fmt::format("system message: {}\n", one_line(now)));
}

void Chat::save(const std::string& file) {
  if (file.empty()) fail(ErrorKind::usage, "/save: expected a file name, found none");
  std::error_code ignored;
  if (file != saved_file_ && std::filesystem::exists(file, ignored)) {
    fail(ErrorKind::usage, "/save: expected a new file, found {}; name another", in_quotes(file));
  }
  const OrderedJson saved = {{"model", run_.options.model.name()},
                             {"messages", conversation_.all_messages()}};
  try {
    NewFile out(file);
    out.write(saved.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
    out.commit();
  } catch (const Error& error) {  // the chat goes on, and another name may do
    fail(ErrorKind::usage, "/save: {}", error.what());
  }
  saved_file_ = file;
  write_err(fmt::format("saved {} exchanges in {}\n", conversation_.exchanges().size(),
                        in_quotes(file, 300)));
}

void Chat::obey(const ChatCommand& command) {
  switch (command.kind) {
    case ChatCommand::Kind::help:
      write_err(chat_help());
      return;
    case ChatCommand::Kind::clear:
      conversation_.clear();
      write_err("the conversation begins anew\n");
      return;
    case ChatCommand::Kind::system:
      set_system(command.argument);
      return;
    case ChatCommand::Kind::save:
      save(command.argument);
      return;
    case ChatCommand::Kind::unknown:
      write_err(fmt::format("klotski: /{}: no such command; /help lists them\n",
                            one_line(command.argument, 80)));
  }
}

void greet(const Chat& chat) {
  write_err(chat.has_template()
                ? "Enter sends, Ctrl-C stops an answer, Ctrl-D ends, /help lists commands.\n"
                : "This model has no chat template: it continues what you write. Ctrl-C stops it, "
                  "Ctrl-D ends, /help lists commands.\n");
}

// Whether a chat outlives the error: a person can send another message, or other commands, where
// the template or a file refused one; nobody reads the reports of a chat from a pipe.
bool can_go_on(const Error& error, bool terminal) {
  if (error.kind() == ErrorKind::usage) return true;
  return terminal && error.kind() != ErrorKind::device_lost && error.kind() != ErrorKind::internal;
}

}  // namespace

// A message that cannot be answered is reported and left out. Only a person gives commands: a text
// that is piped in cannot write files.
int run_interactive(const TextRun& run) {
  const int64_t positions = std::min(run.session.description().max_positions, kChatPositions);
  Chat chat(run, positions);
  prepare(run, {.tokens_per_sequence = positions,
                .prompt_tokens = positions,
                .generated_tokens = positions / 2});
  const bool terminal = chat_has_terminal();
  if (terminal) greet(chat);
  if (terminal) let_signals_ask();
  const std::unique_ptr<ChatInput> input = open_chat_input();
  while (const std::optional<std::string> message = input->next()) {
    if (message->empty()) continue;
    const auto command = terminal ? parse_chat_command(*message) : std::nullopt;
    try {
      if (command) {
        chat.obey(*command);
      } else {
        chat.answer(*message);
      }
    } catch (const Error& error) {
      if (!can_go_on(error, terminal)) throw;
      write_err(fmt::format("klotski: {}\n", one_line(error.what())));
    }
    if (signal_asking_to_stop() != SIGTERM) take_signal();
  }
  if (terminal) write_err("\n");
  write_session_files(run.options.flags, run.session);
  return signal_asking_to_stop() == 0 ? 0 : 128 + signal_asking_to_stop();
}

}  // namespace klotski
