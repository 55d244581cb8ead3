#include <memory>

#include "base/error.h"
#include "cli/command.h"

namespace klotski {

namespace {

int show_help(const CLI::App& app, const std::string& name) {
  if (name.empty()) {
    write_out(app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal));
    return 0;
  }
  const auto named =
      app.get_subcommands([&](const CLI::App* command) { return command->get_name() == name; });
  if (named.empty()) {
    fail(ErrorKind::usage, "help {}: no such command (see klotski help)", in_quotes(name));
  }
  write_out(named.front()->help(app.get_name()));
  return 0;
}

}  // namespace

void add_help_command(CLI::App& app, Action& action) {
  auto name = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("help", "Show the commands, or the options of one");
  command->add_option("COMMAND", *name, "Command to show the options of");
  command->callback(
      [&app, name, &action] { action = [&app, name] { return show_help(app, *name); }; });
}

}  // namespace klotski
