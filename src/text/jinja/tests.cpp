#include "text/jinja/tests.h"

#include <algorithm>
#include <unordered_map>

#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"

namespace klotski::jinja {
namespace {

using Bound = BoundArguments;

template <Kind Wanted>
bool is_kind(Runtime&, const Value& value, const Bound&) {
  return value.is(Wanted);
}

template <Operator Op>
bool compares(Runtime& rt, const Value& value, const Bound& args) {
  return compare(rt, Op, value, args[0]);
}

bool is_defined(Runtime&, const Value& value, const Bound&) { return !value.is(Kind::undefined); }

bool is_callable(Runtime&, const Value& value, const Bound&) {
  return value.is(Kind::callable) || value.is(Kind::undefined) || value.is(Kind::loop);
}

bool is_constant(const Value& value, bool wanted) {
  return value.is(Kind::boolean) && (value.integer() != 0) == wanted;
}
bool is_true(Runtime&, const Value& value, const Bound&) { return is_constant(value, true); }
bool is_false(Runtime&, const Value& value, const Bound&) { return is_constant(value, false); }

bool is_divisible(Runtime& rt, const Value& value, const Bound& args) {
  const Value rest = arithmetic(rt, Operator::modulo, value, args[0]);
  return equal(rest, Value::integer(0));
}

template <int64_t Rest>
bool has_rest(Runtime& rt, const Value& value, const Bound&) {
  return equal(arithmetic(rt, Operator::modulo, value, Value::integer(2)), Value::integer(Rest));
}

bool is_escaped(Runtime&, const Value& value, const Bound&) {
  return value.is_string() && value.as<StringObject>().markup;
}

bool is_iterable_value(Runtime&, const Value& value, const Bound&) { return is_iterable(value); }
bool is_number_value(Runtime&, const Value& value, const Bound&) { return value.is_number(); }

bool is_sequence_value(Runtime&, const Value& value, const Bound&) {
  return value.is_string() || value.is_sequence() || value.is(Kind::dict) ||
         value.is(Kind::range) || value.is(Kind::undefined);
}

bool text_answers(Runtime& rt, const Value& value, std::string_view method) {
  const Value text = to_text_value(rt, value);
  const MethodEntry* entry = find_string_method(method);
  return truthy(entry->function(rt, text, BoundArguments(method, "", {})));
}

bool is_lower_text(Runtime& rt, const Value& value, const Bound&) {
  return text_answers(rt, value, "islower");
}
bool is_upper_text(Runtime& rt, const Value& value, const Bound&) {
  return text_answers(rt, value, "isupper");
}

// Python compares addresses. Its small integers and its constants exist once; so do short strings
// that are equal, as far as a template can tell.
bool is_same(Runtime&, const Value& value, const Bound& args) {
  if (value.kind() != args[0].kind()) return false;
  if (value.identity() != nullptr && !value.is_string()) {
    return value.identity() == args[0].identity();
  }
  return equal(value, args[0]);
}

bool is_filter(Runtime&, const Value& value, const Bound&) {
  require_hashable(value);
  return value.is_string() && find_filter(value.text()) != nullptr;
}

bool is_test(Runtime&, const Value& value, const Bound&) {
  require_hashable(value);
  return value.is_string() && find_test(value.text()) != nullptr;
}

constexpr TestEntry kTests[] = {
    {"!=", "$other!", compares<Operator::not_equal>},
    {"<", "$other!", compares<Operator::less>},
    {"<=", "$other!", compares<Operator::less_equal>},
    {"==", "$other!", compares<Operator::equal>},
    {">", "$other!", compares<Operator::greater>},
    {">=", "$other!", compares<Operator::greater_equal>},
    {"boolean", "", is_kind<Kind::boolean>},
    {"callable", "", is_callable},
    {"defined", "", is_defined},
    {"divisibleby", "num!", is_divisible},
    {"eq", "$other!", compares<Operator::equal>},
    {"equalto", "$other!", compares<Operator::equal>},
    {"escaped", "", is_escaped},
    {"even", "", has_rest<0>},
    {"false", "", is_false},
    {"filter", "", is_filter},
    {"float", "", is_kind<Kind::real>},
    {"ge", "$other!", compares<Operator::greater_equal>},
    {"greaterthan", "$other!", compares<Operator::greater>},
    {"gt", "$other!", compares<Operator::greater>},
    {"in", "seq!", compares<Operator::in>},
    {"integer", "", is_kind<Kind::integer>},
    {"iterable", "", is_iterable_value},
    {"le", "$other!", compares<Operator::less_equal>},
    {"lessthan", "$other!", compares<Operator::less>},
    {"lower", "", is_lower_text},
    {"lt", "$other!", compares<Operator::less>},
    {"mapping", "", is_kind<Kind::dict>},
    {"ne", "$other!", compares<Operator::not_equal>},
    {"none", "", is_kind<Kind::none>},
    {"number", "", is_number_value},
    {"odd", "", has_rest<1>},
    {"sameas", "other!", is_same},
    {"sequence", "", is_sequence_value},
    {"string", "", is_kind<Kind::string>},
    {"test", "", is_test},
    {"true", "", is_true},
    {"undefined", "", is_kind<Kind::undefined>},
    {"upper", "", is_upper_text},
};

}  // namespace

const TestEntry* find_test(std::string_view name) {
  const auto* found =
      std::lower_bound(std::begin(kTests), std::end(kTests), name,
                       [](const TestEntry& entry, std::string_view n) { return entry.name < n; });
  return found != std::end(kTests) && found->name == name ? found : nullptr;
}

bool apply_test(Runtime& runtime, const TestEntry& test, const Value& value, Arguments arguments) {
  runtime.budget().step();
  return test.function(runtime, value,
                       BoundArguments(test.name, test.signature, std::move(arguments)));
}

}  // namespace klotski::jinja
