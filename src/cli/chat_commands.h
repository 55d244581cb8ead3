#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace klotski {

// A line of a chat that is an order to the program and no message to the model.
struct ChatCommand {
  enum class Kind { help, clear, system, save, unknown };
  Kind kind;
  std::string argument;  // text after the name; of an unknown command the name
};

// The command of a line: one line that begins with / and a name of letters alone. Anything else is
// a message, /usr/bin and text with a space before the / among it.
std::optional<ChatCommand> parse_chat_command(std::string_view line);

// Every command with its meaning, and the keys, one a line.
std::string chat_help();

}  // namespace klotski
