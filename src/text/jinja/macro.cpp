#include "text/jinja/macro.h"

#include <algorithm>

#include "base/error.h"

namespace klotski::jinja {
namespace {

using Keywords = std::vector<std::pair<std::string, Value>>;

// Takes a keyword argument out; missing where it was not given.
Value take_keyword(Runtime& runtime, Keywords* keywords, std::string_view name) {
  runtime.budget().step(1 + keywords->size() / 4);
  const auto found = std::find_if(keywords->begin(), keywords->end(),
                                  [name](const auto& entry) { return entry.first == name; });
  if (found == keywords->end()) return Value();
  Value value = std::move(found->second);
  keywords->erase(found);
  return value;
}

}  // namespace

Value MacroObject::call(Runtime&, Arguments arguments) const {
  return interpreter_->call_macro(*macro_, outer_, std::move(arguments));
}

std::string MacroObject::describe() const {
  return macro_->name.empty() ? "<Macro anonymous>" : fmt::format("<Macro '{}'>", macro_->name);
}

Value MacroObject::attribute(Runtime& runtime, std::string_view name) const {
  if (name == "name") return macro_->name.empty() ? Value::none() : runtime.text(macro_->name);
  if (name == "catch_kwargs") return Value::boolean(macro_->kwargs.has_value());
  if (name == "catch_varargs") return Value::boolean(macro_->varargs.has_value());
  if (name == "caller") return Value::boolean(macro_->accesses_caller);
  if (name != "arguments") return Value();
  std::vector<Value> names;
  for (const std::string& parameter : macro_->parameters) names.push_back(runtime.text(parameter));
  return runtime.tuple(std::move(names));
}

Value Interpreter::call_macro(const MacroNode& macro, Frame* outer, Arguments arguments) {
  const DepthGuard guard(runtime_.depth(), runtime_.budget().max_depth());
  runtime_.budget().step(macro.parameters.size());
  const auto frame = make_frame(macro.slot_count, outer);
  bind_parameters(macro, &arguments, frame.get());
  enter_scope(macro.loads, frame.get());
  const size_t without_default = macro.parameters.size() - macro.defaults.size();
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    Value& slot = variable(macro.slots[i], frame.get());
    if (!slot.is(Kind::missing)) continue;
    if (i >= without_default) {
      Value value = evaluate(*macro.defaults[i - without_default], frame.get());
      variable(macro.slots[i], frame.get()) = std::move(value);
    } else {
      slot = Value::undefined(
          fmt::format("parameter {} was not provided", in_quotes(macro.parameters[i])));
    }
  }
  return captured_text(macro.body, frame.get());
}

// Binds parameters in the order in which Jinja's Macro sorts its arguments out.
void Interpreter::bind_parameters(const MacroNode& macro, Arguments* arguments, Frame* frame) {
  const size_t count = macro.parameters.size();
  auto& given = arguments->positional;
  bool found_caller = given.size() >= count && macro.explicit_caller;
  for (size_t i = 0; i < count; ++i) {
    Value& slot = variable(macro.slots[i], frame);
    if (i < given.size()) {
      slot = given[i];
      continue;
    }
    slot = take_keyword(runtime_, &arguments->keyword, macro.parameters[i]);
    if (macro.parameters[i] == "caller") found_caller = true;
  }
  if (macro.caller && !found_caller) {
    const Value caller = take_keyword(runtime_, &arguments->keyword, "caller");
    const bool absent = caller.is(Kind::missing) || caller.is(Kind::none);
    variable(*macro.caller, frame) = absent ? Value::undefined("No caller defined") : caller;
  }
  if (macro.kwargs) {
    DictObject rest;
    for (const auto& [name, value] : arguments->keyword) rest.set(runtime_.text(name), value);
    variable(*macro.kwargs, frame) = runtime_.dict(std::move(rest));
  } else if (!arguments->keyword.empty()) {
    raise("macro {} takes no keyword argument {}", in_quotes(macro.name),
          in_quotes(arguments->keyword[0].first));
  }
  if (macro.varargs) {
    std::vector<Value> rest(
        given.begin() + static_cast<std::ptrdiff_t>(std::min(count, given.size())), given.end());
    variable(*macro.varargs, frame) = runtime_.tuple(std::move(rest));
  } else if (given.size() > count) {
    raise("macro {} takes not more than {} arguments", in_quotes(macro.name), count);
  }
}

}  // namespace klotski::jinja
