#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_set>

#include "base/error.h"
#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/loop.h"
#include "text/jinja/operators.h"
#include "text/jinja/tests.h"

namespace klotski::jinja {
namespace {

// Whether Jinja computes an expression when it compiles. Results can differ then from those at run
// time; see the two uses. Walks the expression at every use, so each part has its price.
bool is_constant(Budget& budget, const Expr& expr) {
  budget.step();
  static constexpr std::array<std::string_view, 5> kWithContext = {"map", "reject", "rejectattr",
                                                                   "select", "selectattr"};
  if (expr.kind == ExprKind::name || expr.kind == ExprKind::call) return false;
  if (expr.kind == ExprKind::filter &&
      std::find(kWithContext.begin(), kWithContext.end(), expr.name) != kWithContext.end()) {
    return false;
  }
  const auto constant = [&budget](const ExprPtr& part) {
    return part == nullptr || is_constant(budget, *part);
  };
  if (!std::all_of(expr.items.begin(), expr.items.end(), constant)) return false;
  if (expr.arguments == nullptr) return true;
  const CallArguments& arguments = *expr.arguments;
  return std::all_of(arguments.positional.begin(), arguments.positional.end(), constant) &&
         std::all_of(arguments.keyword.begin(), arguments.keyword.end(),
                     [&](const auto& entry) { return constant(entry.second); }) &&
         constant(arguments.rest) && constant(arguments.rest_keywords);
}

// Jinja writes a constant base into Python source without parentheses, so that -2 ** x is -(2 ** x)
// if x is a variable and (-2) ** 2 if all is constant.
bool binds_minus_last(Budget& budget, const Expr& expr, size_t index, const Value& base) {
  return expr.operators[index] == Operator::power && index == 0 && base.is_number() &&
         std::signbit(base.number()) && is_constant(budget, *expr.items[0]) &&
         !is_constant(budget, *expr.items[1]);
}

}  // namespace

Value call_value(Runtime& runtime, const Value& function, Arguments arguments) {
  runtime.budget().step();
  if (function.is(Kind::callable)) {
    return function.as<CallableObject>().call(runtime, std::move(arguments));
  }
  if (function.is(Kind::loop)) {
    auto& loop = function.mutable_as<LoopObject>();
    if (loop.interpreter == nullptr) raise("the loop must be 'recursive' to be called");
    return loop.interpreter->call_loop(loop, arguments);
  }
  if (function.is(Kind::undefined)) raise_undefined(function);
  raise("a value of type {} cannot be called", type_name(function));
}

Value Interpreter::evaluate(const Expr& expr, Frame* frame) {
  runtime_.budget().step();
  if (expr.kind == ExprKind::constant) return expr.constant;
  if (expr.kind == ExprKind::name) return evaluate_name(expr, frame);
  const DepthGuard guard(runtime_.depth(), runtime_.budget().max_depth());
  line_ = expr.line;
  return evaluate_kind(expr, frame);
}

Value Interpreter::evaluate_kind(const Expr& expr, Frame* frame) {
  switch (expr.kind) {
    case ExprKind::list:
      return runtime_.list(evaluate_items(expr, frame));
    case ExprKind::tuple:
      return runtime_.tuple(evaluate_items(expr, frame));
    case ExprKind::dict:
      return evaluate_dict(expr, frame);
    case ExprKind::attribute:
      return get_attribute(runtime_, evaluate(*expr.items[0], frame), expr.name);
    case ExprKind::subscript: {
      const Value value = evaluate(*expr.items[0], frame);
      return get_item(runtime_, value, evaluate(*expr.items[1], frame));
    }
    case ExprKind::slice:
      return evaluate_slice(expr, frame);
    case ExprKind::call:
      return evaluate_call(expr, frame, Value());
    case ExprKind::filter:
      return evaluate_filter(expr, frame);
    case ExprKind::test:
      return evaluate_test(expr, frame);
    case ExprKind::arithmetic:
      return evaluate_arithmetic(expr, frame);
    case ExprKind::compare:
      return evaluate_compare(expr, frame);
    case ExprKind::concat:
      return evaluate_concat(expr, frame);
    case ExprKind::all_of:
    case ExprKind::any_of:
      return evaluate_logic(expr, frame);
    case ExprKind::negation:
      return Value::boolean(!truthy(evaluate(*expr.items[0], frame)));
    case ExprKind::minus:
      return negate(evaluate(*expr.items[0], frame));
    case ExprKind::plus:
      return positive(evaluate(*expr.items[0], frame));
    case ExprKind::conditional:
      return evaluate_conditional(expr, frame);
    default:
      raise("an expression cannot be evaluated here");
  }
}

Value Interpreter::evaluate_name(const Expr& expr, Frame* frame) {
  const Value& value = variable(expr.slot, frame);
  if (!value.is(Kind::missing)) return value;
  return Value::undefined(fmt::format("{} is undefined", in_quotes(expr.name)));
}

std::vector<Value> Interpreter::evaluate_items(const Expr& expr, Frame* frame) {
  std::vector<Value> items;
  items.reserve(expr.items.size());
  for (const ExprPtr& item : expr.items) items.push_back(evaluate(*item, frame));
  return items;
}

Value Interpreter::evaluate_dict(const Expr& expr, Frame* frame) {
  DictObject dict;
  for (size_t i = 0; i + 1 < expr.items.size(); i += 2) {
    const Value key = evaluate(*expr.items[i], frame);
    dict.set(key, evaluate(*expr.items[i + 1], frame));
  }
  return runtime_.dict(std::move(dict));
}

Value Interpreter::evaluate_slice(const Expr& expr, Frame* frame) {
  const Value value = evaluate(*expr.items[0], frame);
  std::array<Value, 3> bounds;
  for (size_t i = 0; i < 3; ++i) {
    const ExprPtr& bound = expr.items[i + 1];
    bounds[i] = bound == nullptr ? Value::none() : evaluate(*bound, frame);
  }
  // A slice of a value without elements is an error, but undefined where the whole printed
  // expression is constant.
  const bool sliceable = length_of(value) >= 0 && !value.is(Kind::dict);
  if (!sliceable && printed_ != nullptr && is_constant(runtime_.budget(), *printed_)) {
    return Value::undefined("a constant cannot be sliced");
  }
  return get_slice(runtime_, value, bounds);
}

Arguments Interpreter::evaluate_arguments(const CallArguments* arguments, Frame* frame) {
  Arguments result;
  if (arguments == nullptr) return result;
  for (const ExprPtr& expr : arguments->positional) {
    result.positional.push_back(evaluate(*expr, frame));
  }
  if (arguments->rest != nullptr) {
    for (Value& item : elements(runtime_, evaluate(*arguments->rest, frame))) {
      result.positional.push_back(std::move(item));
    }
  }
  for (const auto& [name, expr] : arguments->keyword) {
    result.keyword.emplace_back(name, evaluate(*expr, frame));
  }
  if (arguments->rest_keywords == nullptr) return result;
  const Value rest = evaluate(*arguments->rest_keywords, frame);
  if (!rest.is(Kind::dict)) raise("what follows ** must be a mapping, found {}", type_name(rest));
  std::unordered_set<std::string_view> given;
  for (const auto& entry : arguments->keyword) given.insert(entry.first);
  for (const auto& [key, value] : rest.as<DictObject>().entries()) {
    if (!key.is_string()) raise("keywords must be strings");
    if (given.count(key.text()) != 0) {
      raise("the keyword argument {} is given twice", in_quotes(key.text()));
    }
    runtime_.budget().allocate(key.text().size() + sizeof(result.keyword[0]));
    result.keyword.emplace_back(key.text(), value);
  }
  return result;
}

Value Interpreter::evaluate_call(const Expr& expr, Frame* frame, const Value& caller) {
  const Value function = evaluate(*expr.items[0], frame);
  Arguments arguments = evaluate_arguments(expr.arguments.get(), frame);
  if (!caller.is(Kind::missing)) arguments.keyword.emplace_back("caller", caller);
  line_ = expr.line;
  return call_value(runtime_, function, std::move(arguments));
}

Value Interpreter::evaluate_filter(const Expr& expr, Frame* frame) {
  const Value input = expr.items[0] == nullptr ? std::exchange(filter_input_, Value())
                                               : evaluate(*expr.items[0], frame);
  if (expr.filter == nullptr) raise("unknown filter {}", in_quotes(expr.name));
  Arguments arguments = evaluate_arguments(expr.arguments.get(), frame);
  line_ = expr.line;
  return apply_filter(runtime_, *expr.filter, input, std::move(arguments));
}

Value Interpreter::evaluate_test(const Expr& expr, Frame* frame) {
  const Value value = evaluate(*expr.items[0], frame);
  if (expr.test == nullptr) raise("unknown test {}", in_quotes(expr.name));
  Arguments arguments = evaluate_arguments(expr.arguments.get(), frame);
  return Value::boolean(apply_test(runtime_, *expr.test, value, std::move(arguments)));
}

Value Interpreter::evaluate_arithmetic(const Expr& expr, Frame* frame) {
  Value left = evaluate(*expr.items[0], frame);
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    const Value right = evaluate(*expr.items[i + 1], frame);
    line_ = expr.line;
    const bool minus_last = binds_minus_last(runtime_.budget(), expr, i, left);
    left = arithmetic(runtime_, expr.operators[i], minus_last ? negate(left) : left, right);
    if (minus_last) left = negate(left);
  }
  return left;
}

Value Interpreter::evaluate_compare(const Expr& expr, Frame* frame) {
  Value left = evaluate(*expr.items[0], frame);
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = evaluate(*expr.items[i + 1], frame);
    if (!compare(runtime_, expr.operators[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_concat(const Expr& expr, Frame* frame) {
  TextBuilder out(runtime_);
  for (const ExprPtr& item : expr.items) {
    const Value value = evaluate(*item, frame);
    out.append(value.is_string() ? value.text() : to_text(runtime_, value));
  }
  return out.value();
}

Value Interpreter::evaluate_logic(const Expr& expr, Frame* frame) {
  const bool stop_at = expr.kind == ExprKind::any_of;
  Value value;
  for (const ExprPtr& item : expr.items) {
    value = evaluate(*item, frame);
    if (truthy(value) == stop_at) return value;
  }
  return value;
}

Value Interpreter::evaluate_conditional(const Expr& expr, Frame* frame) {
  if (truthy(evaluate(*expr.items[0], frame))) return evaluate(*expr.items[1], frame);
  if (expr.items[2] != nullptr) return evaluate(*expr.items[2], frame);
  return Value::undefined("the inline if-expression was false and has no else");
}

}  // namespace klotski::jinja
