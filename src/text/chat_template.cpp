#include "text/chat_template.h"

#include "base/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"
#include "text/jinja/scope.h"

namespace klotski {
namespace {

// Templates come with models and write their own messages: a message that reaches a terminal is one
// line of bounded length.
constexpr size_t kMaxMessageBytes = 1000;

[[noreturn]] void fail_at(std::string_view name, int line, std::string_view message) {
  fail(ErrorKind::bad_model, "{}:{}: {}", name, line, one_line(message, kMaxMessageBytes));
}

}  // namespace

ChatTemplate::ChatTemplate(std::shared_ptr<const jinja::Template> compiled, std::string name,
                           TemplateLimits limits)
    : compiled_(std::move(compiled)), name_(std::move(name)), limits_(limits) {}

ChatTemplate ChatTemplate::parse(std::string_view source, std::string_view name,
                                 TemplateLimits limits) {
  try {
    auto tree = std::make_shared<jinja::Template>();
    tree->body = jinja::Parser(jinja::tokenize(source)).parse_template();
    jinja::resolve_names(tree.get());
    return ChatTemplate(std::move(tree), std::string(name), limits);
  } catch (const jinja::SyntaxError& error) {
    fail_at(name, error.line(), error.what());
  }
}

std::string ChatTemplate::render(const OrderedJson& context,
                                 const std::optional<std::tm>& now) const {
  if (!context.is_object()) {
    fail(ErrorKind::internal, "{}: the variables of a template must be an object", name_);
  }
  jinja::Interpreter interpreter(*compiled_, limits_, now);
  try {
    return interpreter.render(context);
  } catch (const jinja::Failure& failure) {
    fail_at(name_, interpreter.line(), failure.what());
  }
}

}  // namespace klotski
