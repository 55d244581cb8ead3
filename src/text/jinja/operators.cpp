#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/format.h"
#include "text/jinja/search.h"

namespace klotski::jinja {
namespace {

[[noreturn]] void raise_overflow() { raise("an integer does not fit 64 bits"); }

std::string_view symbol(Operator op) {
  switch (op) {
    case Operator::add:
      return "+";
    case Operator::subtract:
      return "-";
    case Operator::multiply:
      return "*";
    case Operator::divide:
      return "/";
    case Operator::floor_divide:
      return "//";
    case Operator::modulo:
      return "%";
    default:
      return "**";
  }
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == -1 && a == INT64_MIN) raise_overflow();
  const int64_t quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

int64_t floor_modulo(int64_t a, int64_t b) {
  if (b == -1) return 0;  // INT64_MIN % -1 is not defined in C++
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Value power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) raise("0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  const auto result = integer_power(base, exponent);
  if (!result) raise_overflow();
  return Value::integer(*result);
}

Value integer_arithmetic(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Operator::add:
      if (__builtin_add_overflow(a, b, &result)) raise_overflow();
      return Value::integer(result);
    case Operator::subtract:
      if (__builtin_sub_overflow(a, b, &result)) raise_overflow();
      return Value::integer(result);
    case Operator::multiply:
      if (__builtin_mul_overflow(a, b, &result)) raise_overflow();
      return Value::integer(result);
    case Operator::power:
      return power(a, b);
    default:
      break;
  }
  if (b == 0) raise("division by zero");
  if (op == Operator::divide) return Value::real(static_cast<double>(a) / static_cast<double>(b));
  if (op == Operator::floor_divide) return Value::integer(floor_divide(a, b));
  return Value::integer(floor_modulo(a, b));
}

double floor_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

double floor_quotient(double a, double b) {
  const double rest = floor_modulo(a, b);
  const double quotient = (a - rest) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

double real_power(double a, double b) {
  if (a == 0 && b < 0) raise("0 cannot be raised to a negative power");
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
    raise("complex numbers are not supported");
  }
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) raise("a number is too large");
  return result;
}

Value real_arithmetic(Operator op, double a, double b) {
  switch (op) {
    case Operator::add:
      return Value::real(a + b);
    case Operator::subtract:
      return Value::real(a - b);
    case Operator::multiply:
      return Value::real(a * b);
    case Operator::power:
      return Value::real(real_power(a, b));
    default:
      break;
  }
  if (b == 0) raise("division by zero");
  if (op == Operator::divide) return Value::real(a / b);
  return Value::real(op == Operator::modulo ? floor_modulo(a, b) : floor_quotient(a, b));
}

Value repeat(Runtime& runtime, const Value& value, int64_t count) {
  if (value.is_string()) {
    TextBuilder out(runtime);
    out.append_repeated(value.text(), count);
    return out.value(value.as<StringObject>().markup);
  }
  std::vector<Value> items;
  const auto copies = static_cast<uint64_t>(std::max<int64_t>(0, count));
  if (!value.items().empty()) {
    runtime.budget().allocate(copies, value.items().size() * sizeof(Value));
    for (uint64_t i = 0; i < copies; ++i) {
      items.insert(items.end(), value.items().begin(), value.items().end());
    }
  }
  return value.is(Kind::list) ? runtime.list(std::move(items)) : runtime.tuple(std::move(items));
}

std::string escaped_unless_markup(const Value& value) {
  return value.as<StringObject>().markup ? value.text() : escape_html(value.text());
}

Value add_strings(Runtime& runtime, const Value& a, const Value& b) {
  TextBuilder out(runtime);
  const bool markup = a.as<StringObject>().markup || b.as<StringObject>().markup;
  out.append(markup ? escaped_unless_markup(a) : a.text());
  out.append(markup ? escaped_unless_markup(b) : b.text());
  return out.value(markup);
}

Value add_sequences(Runtime& runtime, const Value& a, const Value& b) {
  runtime.budget().allocate(a.items().size() + b.items().size(), sizeof(Value));
  std::vector<Value> items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.is(Kind::list) ? runtime.list(std::move(items)) : runtime.tuple(std::move(items));
}

}  // namespace

std::optional<int64_t> integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  for (int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) return std::nullopt;
  }
  return result;
}

Value arithmetic(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return integer_arithmetic(op, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return real_arithmetic(op, a.number(), b.number());
  if (op == Operator::modulo && a.is_string()) {
    return Value::string(format_percent(runtime, a.text(), b), a.as<StringObject>().markup);
  }
  if (a.is(Kind::undefined)) raise_undefined(a);
  if (b.is(Kind::undefined)) raise_undefined(b);
  if (op == Operator::add && a.is_string() && b.is_string()) return add_strings(runtime, a, b);
  if (op == Operator::add && a.is_sequence() && a.kind() == b.kind()) {
    return add_sequences(runtime, a, b);
  }
  if (op == Operator::multiply) {
    if ((a.is_string() || a.is_sequence()) && b.is_integral()) {
      return repeat(runtime, a, b.integer());
    }
    if ((b.is_string() || b.is_sequence()) && a.is_integral()) {
      return repeat(runtime, b, a.integer());
    }
  }
  raise("unsupported operand types for {}: {} and {}", symbol(op), type_name(a), type_name(b));
}

Value negate(const Value& value) {
  if (value.is(Kind::real)) return Value::real(-value.number());
  if (value.is(Kind::undefined)) raise_undefined(value);
  if (!value.is_integral()) raise("unary - needs a number, found {}", type_name(value));
  if (value.integer() == INT64_MIN) raise_overflow();
  return Value::integer(-value.integer());
}

Value positive(const Value& value) {
  if (value.is(Kind::undefined)) raise_undefined(value);
  if (!value.is_number()) raise("unary + needs a number, found {}", type_name(value));
  return value.is(Kind::real) ? value : Value::integer(value.integer());
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  runtime.budget().step(value_weight(container));
  if (container.is_string()) {
    if (item.is(Kind::undefined)) raise_undefined(item);
    if (!item.is_string()) raise("'in' a string needs a string, found {}", type_name(item));
    charge_search(runtime, container.text(), item.text());
    return find_text(container.text(), item.text()) != std::string_view::npos;
  }
  if (container.is(Kind::dict)) {
    require_hashable(item);
    return container.as<DictObject>().find(item) != nullptr;
  }
  const auto iterator = iterate(runtime, container);
  Value candidate;
  while (iterator->next(&candidate)) {
    runtime.budget().step();
    if (equal(candidate, item)) return true;
  }
  return false;
}

bool compare(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  if (op == Operator::in) return contains(runtime, b, a);
  if (op == Operator::not_in) return !contains(runtime, b, a);
  runtime.budget().step(std::min(value_weight(a), value_weight(b)));
  switch (op) {
    case Operator::equal:
      return equal(a, b);
    case Operator::not_equal:
      return !equal(a, b);
    case Operator::less:
      return less(a, b);
    case Operator::greater:
      return less(b, a);
    case Operator::less_equal:
      return less(a, b) || equal(a, b);
    default:
      return less(b, a) || equal(a, b);
  }
}

}  // namespace klotski::jinja
