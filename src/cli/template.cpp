#include <ctime>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/command.h"
#include "text/chat_template.h"

namespace klotski {

namespace {

constexpr uint64_t kMaxTemplateBytes = 16 * kMiB;
constexpr uint64_t kMaxInputBytes = 512 * kMiB;

struct TemplateOptions {
  std::string file;
};

// "2025-01-15 12:34:56", with a T between date and time if liked.
std::tm parse_time(const std::string& text) {
  for (const char* format : {"%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d"}) {
    std::tm time{};
    const char* end = ::strptime(text.c_str(), format, &time);
    if (end == nullptr || *end != '\0') continue;
    std::tm utc = time;  // fills in the day of the week and of the year
    const std::time_t seconds = ::timegm(&utc);
    ::gmtime_r(&seconds, &time);
    return time;
  }
  fail(ErrorKind::usage, "now: expected a time such as 2025-01-15 12:34:56, found {}",
       in_quotes(text));
}

// The variables of the template, as Hugging Face's apply_chat_template passes them.
OrderedJson context_of(const OrderedJson& input) {
  if (!input.is_object() || !input.contains("messages") || !input["messages"].is_array()) {
    fail(ErrorKind::usage, "standard input: expected an object with an array \"messages\"");
  }
  OrderedJson context = {{"messages", input["messages"]},
                         {"tools", nullptr},
                         {"documents", nullptr},
                         {"add_generation_prompt", false}};
  if (input.contains("tools") && !input["tools"].empty()) context["tools"] = input["tools"];
  for (const char* name : {"documents", "add_generation_prompt", "bos_token", "eos_token"}) {
    if (input.contains(name)) context[name] = input[name];
  }
  if (!input.contains("kwargs") || input["kwargs"].is_null()) return context;
  if (!input["kwargs"].is_object()) fail(ErrorKind::usage, "kwargs: expected an object");
  for (const auto& item : input["kwargs"].items()) context[item.key()] = item.value();
  return context;
}

int template_command(const TemplateOptions& options) {
  const ChatTemplate chat_template =
      ChatTemplate::parse(read_text_file(options.file, kMaxTemplateBytes), options.file);
  const OrderedJson input =
      parse_ordered_json(read_standard_input(kMaxInputBytes), "standard input", ErrorKind::usage);
  const OrderedJson context = context_of(input);
  std::optional<std::tm> now;
  if (input.contains("now") && !input["now"].is_null()) {
    if (!input["now"].is_string()) fail(ErrorKind::usage, "now: expected a string");
    now = parse_time(input["now"].get<std::string>());
  }
  write_out(chat_template.render(context, now));
  return 0;
}

}  // namespace

void add_template_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<TemplateOptions>();
  CLI::App* command = app.add_subcommand("template", "Render a chat template");
  command->add_option("TEMPLATE_FILE", options->file, "A Jinja chat template")->required();
  command->footer(
      "Reads one JSON object from standard input: messages, and optionally tools, documents,\n"
      "add_generation_prompt, bos_token, eos_token, kwargs (further variables) and now (a frozen "
      "time).\nWrites the rendered text. A template's own error gives exit code 3 and its "
      "message.");
  command->callback(
      [options, &action] { action = [options] { return template_command(*options); }; });
}

}  // namespace klotski
