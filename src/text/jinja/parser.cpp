#include "text/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace klotski::jinja {
namespace {

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::end:
      return "the end of the template";
    case TokenKind::block_end:
      return "the end of the statement";
    case TokenKind::variable_end:
      return "the end of the print statement";
    default:
      return in_quotes(token.text);
  }
}

bool can_assign(const Expr& target) {
  if (target.kind == ExprKind::tuple) {
    return std::all_of(target.items.begin(), target.items.end(),
                       [](const ExprPtr& item) { return can_assign(*item); });
  }
  return target.kind == ExprKind::name || target.kind == ExprKind::ns_attribute;
}

}  // namespace

const Token& Parser::look() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }

Token Parser::take() {
  Token token = current();
  if (position_ + 1 < tokens_.size()) ++position_;
  return token;
}

bool Parser::at_op(std::string_view op) const {
  return current().kind == TokenKind::op && current().text == op;
}

bool Parser::at_name(std::string_view name) const {
  return current().kind == TokenKind::name && current().text == name;
}

bool Parser::skip_op(std::string_view op) {
  if (!at_op(op)) return false;
  take();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  take();
  return true;
}

void Parser::expect_op(std::string_view op) {
  if (!skip_op(op)) fail_unexpected(fmt::format("'{}'", op));
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_unexpected(fmt::format("'{}'", name));
}

void Parser::expect(TokenKind kind, std::string_view what) {
  if (current().kind != kind) fail_unexpected(what);
  take();
}

std::string Parser::take_name() {
  if (current().kind != TokenKind::name) fail_unexpected("a name");
  return take().text;
}

void Parser::fail(const std::string& message) const { throw SyntaxError(current().line, message); }

void Parser::fail_unexpected(std::string_view expected) const {
  fail(fmt::format("expected {}, found {}", expected, describe(current())));
}

ExprPtr Parser::make(ExprKind kind, int line) const {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = line;
  return node;
}

ExprPtr Parser::finish(ExprPtr node) const {
  int depth = 0;
  const auto count = [&depth](const ExprPtr& part) {
    if (part != nullptr) depth = std::max(depth, part->depth);
  };
  for (const ExprPtr& item : node->items) count(item);
  if (node->arguments != nullptr) {
    for (const ExprPtr& item : node->arguments->positional) count(item);
    for (const auto& [name, item] : node->arguments->keyword) count(item);
    count(node->arguments->rest);
    count(node->arguments->rest_keywords);
  }
  node->depth = depth + 1;
  if (node->depth > kMaxExprDepth) throw SyntaxError(node->line, "an expression is too long");
  return node;
}

ExprPtr Parser::parse_conditional() {
  const Nesting nesting(this);
  ExprPtr value = parse_or();
  while (at_name("if")) {
    ExprPtr node = make(ExprKind::conditional, take().line);
    node->items.push_back(parse_or());
    node->items.push_back(std::move(value));
    node->items.push_back(skip_name("else") ? parse_conditional() : nullptr);
    value = finish(std::move(node));
  }
  return value;
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  if (!at_name("or")) return left;
  ExprPtr node = make(ExprKind::any_of, left->line);
  node->items.push_back(std::move(left));
  while (skip_name("or")) node->items.push_back(parse_and());
  return finish(std::move(node));
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  if (!at_name("and")) return left;
  ExprPtr node = make(ExprKind::all_of, left->line);
  node->items.push_back(std::move(left));
  while (skip_name("and")) node->items.push_back(parse_not());
  return finish(std::move(node));
}

ExprPtr Parser::parse_not() {
  if (!at_name("not")) return parse_compare();
  const Nesting nesting(this);
  ExprPtr node = make(ExprKind::negation, take().line);
  node->items.push_back(parse_not());
  return finish(std::move(node));
}

ExprPtr Parser::parse_compare() {
  static const std::vector<std::pair<std::string_view, Operator>> kOperators = {
      {"==", Operator::equal},      {"!=", Operator::not_equal}, {"<", Operator::less},
      {"<=", Operator::less_equal}, {">", Operator::greater},    {">=", Operator::greater_equal}};
  ExprPtr left = parse_sum();
  ExprPtr node = make(ExprKind::compare, left->line);
  node->items.push_back(std::move(left));
  while (true) {
    const auto op = std::find_if(kOperators.begin(), kOperators.end(),
                                 [this](const auto& entry) { return at_op(entry.first); });
    if (op != kOperators.end()) {
      take();
      node->operators.push_back(op->second);
    } else if (skip_name("in")) {
      node->operators.push_back(Operator::in);
    } else if (at_name("not") && look().kind == TokenKind::name && look().text == "in") {
      take();
      take();
      node->operators.push_back(Operator::not_in);
    } else {
      break;
    }
    node->items.push_back(parse_sum());
  }
  if (node->operators.empty()) return std::move(node->items[0]);
  return finish(std::move(node));
}

ExprPtr Parser::parse_arithmetic(
    Level operand, const std::vector<std::pair<std::string_view, Operator>>& operators) {
  ExprPtr left = (this->*operand)();
  ExprPtr node;
  while (true) {
    const auto op = std::find_if(operators.begin(), operators.end(),
                                 [this](const auto& entry) { return at_op(entry.first); });
    if (op == operators.end()) break;
    if (node == nullptr) {
      node = make(ExprKind::arithmetic, current().line);
      node->items.push_back(std::move(left));
    }
    take();
    node->operators.push_back(op->second);
    node->items.push_back((this->*operand)());
  }
  return node == nullptr ? std::move(left) : finish(std::move(node));
}

ExprPtr Parser::parse_sum() {
  static const std::vector<std::pair<std::string_view, Operator>> kOperators = {
      {"+", Operator::add}, {"-", Operator::subtract}};
  return parse_arithmetic(&Parser::parse_concat, kOperators);
}

ExprPtr Parser::parse_concat() {
  ExprPtr left = parse_product();
  if (!at_op("~")) return left;
  ExprPtr node = make(ExprKind::concat, left->line);
  node->items.push_back(std::move(left));
  while (skip_op("~")) node->items.push_back(parse_product());
  return finish(std::move(node));
}

ExprPtr Parser::parse_product() {
  static const std::vector<std::pair<std::string_view, Operator>> kOperators = {
      {"*", Operator::multiply},
      {"/", Operator::divide},
      {"//", Operator::floor_divide},
      {"%", Operator::modulo}};
  return parse_arithmetic(&Parser::parse_power, kOperators);
}

ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary();
  ExprPtr node;
  while (at_op("**")) {
    if (node == nullptr) {
      node = make(ExprKind::arithmetic, current().line);
      node->items.push_back(std::move(left));
    }
    take();
    node->operators.push_back(Operator::power);
    node->items.push_back(parse_unary());
  }
  return node == nullptr ? std::move(left) : finish(std::move(node));
}

ExprPtr Parser::parse_unary(bool with_filter) {
  ExprPtr node;
  if (at_op("-") || at_op("+")) {
    const Nesting nesting(this);
    const Token sign = take();
    node = make(sign.text == "-" ? ExprKind::minus : ExprKind::plus, sign.line);
    node->items.push_back(parse_unary(false));
    node = finish(std::move(node));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filter ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExprPtr Parser::parse_name(bool ns_attributes) {
  const Token token = take();
  const std::string& text = token.text;
  ExprPtr node = make(ExprKind::constant, token.line);
  if (text == "true" || text == "True" || text == "false" || text == "False") {
    node->constant = Value::boolean(text == "true" || text == "True");
  } else if (text == "none" || text == "None") {
    node->constant = Value::none();
  } else {
    node->kind = ExprKind::name;
    node->name = text;
    if (ns_attributes && skip_op(".")) {
      node->kind = ExprKind::ns_attribute;
      node->constant = Value::string(take_name());
    }
  }
  return node;
}

ExprPtr Parser::parse_primary(bool ns_attributes) {
  const int line = current().line;
  if (current().kind == TokenKind::name) return parse_name(ns_attributes);
  if (current().kind == TokenKind::string) {
    std::string text;
    while (current().kind == TokenKind::string) text += take().text;
    ExprPtr node = make(ExprKind::constant, line);
    node->constant = Value::string(std::move(text));
    return node;
  }
  if (current().kind == TokenKind::number) {
    ExprPtr node = make(ExprKind::constant, line);
    node->constant = take().number;
    return node;
  }
  if (skip_op("(")) {
    TupleOptions options;
    options.parentheses = true;
    ExprPtr node = parse_tuple(options);
    expect_op(")");
    return node;
  }
  if (at_op("[")) return parse_list();
  if (at_op("{")) return parse_dict();
  fail_unexpected("an expression");
}

bool Parser::at_tuple_end(std::string_view end_name) const {
  return current().kind == TokenKind::variable_end || current().kind == TokenKind::block_end ||
         at_op(")") || (!end_name.empty() && at_name(end_name));
}

ExprPtr Parser::parse_tuple(const TupleOptions& options) {
  const Nesting nesting(this);
  ExprPtr node = make(ExprKind::tuple, current().line);
  bool is_tuple = false;
  while (true) {
    if (!node->items.empty()) expect_op(",");
    if (at_tuple_end(options.end_name)) break;
    node->items.push_back(options.names_only    ? parse_primary(options.ns_attributes)
                          : options.conditional ? parse_conditional()
                                                : parse_or());
    if (!at_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!node->items.empty()) return std::move(node->items[0]);
    if (!options.parentheses) fail_unexpected("an expression");
  }
  return finish(std::move(node));
}

ExprPtr Parser::parse_list() {
  ExprPtr node = make(ExprKind::list, take().line);
  while (!at_op("]")) {
    if (!node->items.empty()) expect_op(",");
    if (at_op("]")) break;
    node->items.push_back(parse_expression());
  }
  expect_op("]");
  return finish(std::move(node));
}

ExprPtr Parser::parse_dict() {
  ExprPtr node = make(ExprKind::dict, take().line);
  while (!at_op("}")) {
    if (!node->items.empty()) expect_op(",");
    if (at_op("}")) break;
    node->items.push_back(parse_expression());
    expect_op(":");
    node->items.push_back(parse_expression());
  }
  expect_op("}");
  return finish(std::move(node));
}

ExprPtr Parser::parse_postfix(ExprPtr node) {
  while (true) {
    if (at_op(".")) {
      node = parse_attribute(std::move(node));
    } else if (at_op("[")) {
      node = parse_subscript(std::move(node));
    } else if (at_op("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::parse_filters_and_tests(ExprPtr node) {
  while (true) {
    if (at_op("|")) {
      node = parse_filter_chain(std::move(node), false);
    } else if (at_name("is")) {
      node = parse_test(std::move(node));
    } else if (at_op("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::parse_attribute(ExprPtr node) {
  const int line = take().line;
  ExprPtr result = make(ExprKind::attribute, line);
  result->items.push_back(std::move(node));
  const Token name = take();
  if (name.kind == TokenKind::name) {
    result->name = name.text;
  } else if (name.kind == TokenKind::number && name.number.is(Kind::integer)) {
    result->kind = ExprKind::subscript;
    ExprPtr index = make(ExprKind::constant, line);
    index->constant = name.number;
    result->items.push_back(std::move(index));
  } else {
    throw SyntaxError(name.line, "expected a name or a number behind the dot");
  }
  return finish(std::move(result));
}

ExprPtr Parser::parse_subscript(ExprPtr node) {
  const int line = take().line;
  std::vector<ExprPtr> parts;
  while (!at_op("]")) {
    if (!parts.empty()) expect_op(",");
    ExprPtr start = at_op(":") ? nullptr : parse_expression();
    if (at_op(":")) {
      if (!parts.empty()) fail("a slice cannot be part of a tuple");
      node = parse_slice(std::move(node), std::move(start));
      expect_op("]");
      return node;
    }
    parts.push_back(std::move(start));
  }
  expect_op("]");
  ExprPtr result = make(ExprKind::subscript, line);
  result->items.push_back(std::move(node));
  if (parts.size() == 1) {
    result->items.push_back(std::move(parts[0]));
  } else {
    ExprPtr tuple = make(ExprKind::tuple, line);
    tuple->items = std::move(parts);
    result->items.push_back(finish(std::move(tuple)));
  }
  return finish(std::move(result));
}

ExprPtr Parser::parse_slice(ExprPtr node, ExprPtr start) {
  ExprPtr result = make(ExprKind::slice, current().line);
  result->items.push_back(std::move(node));
  result->items.push_back(std::move(start));
  for (int part = 0; part < 2; ++part) {
    const bool given = skip_op(":") && !at_op(":") && !at_op("]") && !at_op(",");
    result->items.push_back(given ? parse_expression() : nullptr);
  }
  return finish(std::move(result));
}

ExprPtr Parser::parse_call(ExprPtr node) {
  ExprPtr call = make(ExprKind::call, current().line);
  call->items.push_back(std::move(node));
  call->arguments = parse_arguments();
  return finish(std::move(call));
}

std::unique_ptr<CallArguments> Parser::parse_arguments() {
  const int line = current().line;
  expect_op("(");
  auto arguments = std::make_unique<CallArguments>();
  std::unordered_set<std::string> keywords;
  bool first = true;
  while (!at_op(")")) {
    if (!first) {
      expect_op(",");
      if (at_op(")")) break;
    }
    first = false;
    parse_argument(arguments.get(), &keywords, line);
  }
  expect_op(")");
  return arguments;
}

void Parser::parse_argument(CallArguments* arguments, std::unordered_set<std::string>* keywords,
                            int line) {
  const auto ensure = [line](bool condition) {
    if (!condition) throw SyntaxError(line, "invalid syntax for function call expression");
  };
  const bool no_rest = arguments->rest == nullptr;
  const bool no_rest_keywords = arguments->rest_keywords == nullptr;
  if (skip_op("*")) {
    ensure(no_rest && no_rest_keywords);
    arguments->rest = parse_expression();
  } else if (skip_op("**")) {
    ensure(no_rest_keywords);
    arguments->rest_keywords = parse_expression();
  } else if (current().kind == TokenKind::name && look().kind == TokenKind::op &&
             look().text == "=") {
    ensure(no_rest_keywords);
    std::string name = take().text;
    take();
    ensure(keywords->insert(name).second);
    arguments->keyword.emplace_back(std::move(name), parse_expression());
  } else {
    ensure(no_rest && no_rest_keywords && arguments->keyword.empty());
    arguments->positional.push_back(parse_expression());
  }
}

std::string Parser::parse_dotted_name() {
  std::string name = take_name();
  while (skip_op(".")) {
    name += '.';
    name += take_name();
  }
  return name;
}

ExprPtr Parser::parse_filter_chain(ExprPtr node, bool start_inline) {
  while (at_op("|") || start_inline) {
    if (!start_inline) take();
    start_inline = false;
    ExprPtr filter = make(ExprKind::filter, current().line);
    filter->name = parse_dotted_name();
    filter->items.push_back(std::move(node));
    if (at_op("(")) filter->arguments = parse_arguments();
    node = finish(std::move(filter));
  }
  return node;
}

ExprPtr Parser::parse_test(ExprPtr node) {
  const int line = take().line;
  const bool negated = skip_name("not");
  ExprPtr test = make(ExprKind::test, line);
  test->name = parse_dotted_name();
  test->items.push_back(std::move(node));
  const TokenKind kind = current().kind;
  if (at_op("(")) {
    test->arguments = parse_arguments();
  } else if ((kind == TokenKind::name && !at_name("else") && !at_name("or") && !at_name("and")) ||
             kind == TokenKind::string || kind == TokenKind::number || at_op("[") || at_op("{")) {
    if (at_name("is")) fail("you cannot chain multiple tests with is");
    test->arguments = std::make_unique<CallArguments>();
    test->arguments->positional.push_back(parse_postfix(parse_primary()));
  }
  test = finish(std::move(test));
  if (!negated) return test;
  ExprPtr result = make(ExprKind::negation, line);
  result->items.push_back(std::move(test));
  return finish(std::move(result));
}

ExprPtr Parser::parse_target(const TupleOptions& options) {
  TupleOptions target_options = options;
  target_options.names_only = true;
  ExprPtr target = parse_tuple(target_options);
  if (!can_assign(*target)) throw SyntaxError(target->line, "cannot assign to this expression");
  return target;
}

}  // namespace klotski::jinja
