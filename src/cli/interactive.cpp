#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "cli/command.h"
#include "cli/generation.h"
#include "cli/session_output.h"
#include "engine/prompt.h"

namespace klotski {

namespace {

constexpr int64_t kChatPositions = 8192;  // context of a chat, where the model has more

// A conversation so far: messages for a chat template, or a text to continue.
struct Conversation {
  OrderedJson messages;
  std::string text;
};

std::vector<TokenId> encode_line(const Generation& run, const ChatTemplate* chat_template,
                                 Conversation& conversation, const std::string& line) {
  if (chat_template) {
    conversation.messages.push_back({{"role", "user"}, {"content", line}});
    return encode_chat(run.tokenizer, *chat_template,
                       chat_context(run.config, conversation.messages));
  }
  conversation.text += line;
  return encode_text(run.tokenizer, run.config, run.session.description(), conversation.text,
                     run.options.parse_special);
}

// Answers one line within `positions`; throws without having changed the conversation for good.
void answer(const Generation& run, const ChatTemplate* chat_template, Conversation& conversation,
            const std::string& line, int64_t positions) {
  Conversation next = conversation;
  Request request = request_for(run, encode_line(run, chat_template, next, line));
  const int64_t room = positions - static_cast<int64_t>(request.prompt.size());
  if (room < 1) {
    fail(ErrorKind::usage, "the conversation would have {} tokens, the context holds {}",
         request.prompt.size(), positions);
  }
  request.max_tokens = std::min(request.max_tokens, room);
  const Outcome outcome =
      generate(run, std::move(request), [](std::string_view more) { write_out(more); });
  write_out("\n");
  next.messages.push_back({{"role", "assistant"}, {"content", outcome.text}});
  next.text += outcome.text + "\n";
  conversation = std::move(next);
}

}  // namespace

// A line that cannot be answered is reported and left out.
int run_interactive(const Generation& run) {
  const ModelDescription& description = run.session.description();
  std::optional<ChatTemplate> chat_template;
  if (run.options.chat) chat_template = template_of(run);
  const int64_t positions = std::min(description.max_positions, kChatPositions);
  prepare(run, {.tokens_per_sequence = positions,
                .prompt_tokens = positions,
                .generated_tokens = positions / 2});
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  if (terminal) {
    write_err(chat_template ? "Chat: a line is a message; end with Ctrl-D.\n"
                            : "This model has no chat template: it continues what you write. End "
                              "with Ctrl-D.\n");
  }
  Conversation conversation{.messages = first_messages(run.options), .text = ""};
  LineReader lines(kMaxPromptBytes);
  while (true) {
    if (terminal) write_err("> ");
    const std::optional<std::string> line = lines.next();
    if (!line) break;
    if (line->empty()) continue;
    try {
      answer(run, chat_template ? &*chat_template : nullptr, conversation, *line, positions);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      write_err(fmt::format("klotski: {}\n", one_line(error.what())));
    }
  }
  if (terminal) write_err("\n");
  write_session_files(run.options.flags, run.session);
  return 0;
}

}  // namespace klotski
