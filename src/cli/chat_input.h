#pragma once

#include <memory>
#include <optional>
#include <string>

namespace klotski {

// Where the messages of a chat come from.
class ChatInput {
 public:
  virtual ~ChatInput() = default;
  // The next message, empty where the user dropped the line with Ctrl-C; nothing at the end of the
  // input, or where a signal asks to end.
  virtual std::optional<std::string> next() = 0;
};

// Whether a person types the messages: standard input and standard error are a terminal.
bool chat_has_terminal();

// Messages of at most kMaxPromptBytes from standard input. A terminal gets line editing and a
// history where the program was built with libedit; elsewhere a message is a line.
std::unique_ptr<ChatInput> open_chat_input();

// Line editing in a terminal. Lines of earlier chats are kept in the program's cache folder. Only
// in programs built with libedit.
std::unique_ptr<ChatInput> open_edited_input();

}  // namespace klotski
