#include "cli/chat_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace klotski {

namespace {

struct ChatCommandRow {
  std::string_view name;
  ChatCommand::Kind kind;
  std::string_view usage;
  std::string_view meaning;
};

constexpr std::array<ChatCommandRow, 4> kChatCommands{{
    {"help", ChatCommand::Kind::help, "/help", "show this list"},
    {"clear", ChatCommand::Kind::clear, "/clear", "forget the conversation, keep /system"},
    {"system", ChatCommand::Kind::system, "/system TEXT", "set the system message; alone: show it"},
    {"save", ChatCommand::Kind::save, "/save FILE", "write the conversation as JSON"},
}};

constexpr std::array<std::array<std::string_view, 2>, 4> kChatKeys{{
    {"Ctrl-C", "stop the answer, or drop the line"},
    {"Ctrl-D", "end the chat"},
    {"arrow keys", "move in the line, recall earlier ones"},
    {"(paste)", "several lines are one message"},
}};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t begin = std::min(text.find_first_not_of(kBlank), text.size());
  const size_t end = text.find_last_not_of(kBlank);
  return begin == text.size() ? std::string_view() : text.substr(begin, end + 1 - begin);
}

}  // namespace

std::optional<ChatCommand> parse_chat_command(std::string_view line) {
  if (line.empty() || line.front() != '/' || line.find('\n') != std::string_view::npos) {
    return std::nullopt;
  }
  const size_t end = std::min(line.find_first_of(" \t\r"), line.size());
  const std::string_view name = line.substr(1, end - 1);
  if (name.empty() || !std::all_of(name.begin(), name.end(), is_letter)) return std::nullopt;
  for (const ChatCommandRow& row : kChatCommands) {
    if (row.name == name) return ChatCommand{row.kind, std::string(trimmed(line.substr(end)))};
  }
  return ChatCommand{ChatCommand::Kind::unknown, std::string(name)};
}

std::string chat_help() {
  std::string text;
  for (const ChatCommandRow& row : kChatCommands) {
    text += fmt::format("  {:<13} {}\n", row.usage, row.meaning);
  }
  for (const auto& [key, meaning] : kChatKeys) text += fmt::format("  {:<13} {}\n", key, meaning);
  return text + "  A message that begins with / : put a space before it.\n";
}

}  // namespace klotski
