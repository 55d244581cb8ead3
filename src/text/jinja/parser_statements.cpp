#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "text/jinja/parser.h"

namespace klotski::jinja {

Body Parser::parse_template() {
  Body body = parse_body({});
  return body;
}

StmtPtr Parser::make_statement(StmtKind kind) const {
  auto statement = std::make_unique<Stmt>();
  statement->kind = kind;
  statement->line = current().line;
  return statement;
}

// Statements up to one of the end tags, whose name is then the current token.
Body Parser::parse_body(const EndNames& end_names) {
  const Nesting nesting(this);
  Body body;
  while (current().kind != TokenKind::end) {
    if (current().kind == TokenKind::data) {
      body.push_back(make_statement(StmtKind::text));
      body.back()->text = take().text;
    } else if (current().kind == TokenKind::variable_begin) {
      body.push_back(parse_output());
    } else {
      expect(TokenKind::block_begin, "a statement");
      if (std::any_of(end_names.begin(), end_names.end(),
                      [this](std::string_view name) { return at_name(name); })) {
        return body;
      }
      body.push_back(parse_statement());
      expect(TokenKind::block_end, "the end of the statement");
    }
  }
  if (!end_names.empty())
    fail(fmt::format("unexpected end of template, '{}' is missing", end_names.back()));
  return body;
}

Body Parser::parse_block_body(const EndNames& end_names) {
  skip_op(":");
  expect(TokenKind::block_end, "the end of the statement");
  return parse_body(end_names);
}

Body Parser::parse_block_body_to_end(std::string_view end_name) {
  Body body = parse_block_body({end_name});
  take();
  return body;
}

StmtPtr Parser::parse_output() {
  StmtPtr statement = make_statement(StmtKind::output);
  take();
  statement->values.push_back(parse_tuple({}));
  expect(TokenKind::variable_end, "the end of the print statement");
  return statement;
}

StmtPtr Parser::parse_statement() {
  using Method = StmtPtr (Parser::*)();
  static const std::unordered_map<std::string_view, Method> kTags = {
      {"if", &Parser::parse_if},
      {"for", &Parser::parse_for},
      {"set", &Parser::parse_set},
      {"with", &Parser::parse_with},
      {"macro", &Parser::parse_macro},
      {"call", &Parser::parse_call_block},
      {"filter", &Parser::parse_filter_block},
      {"generation", &Parser::parse_generation},
      {"block", &Parser::parse_block},
      {"autoescape", &Parser::parse_autoescape},
      {"print", &Parser::parse_print},
      {"break", &Parser::parse_break},
      {"continue", &Parser::parse_continue},
      {"include", &Parser::refuse_loading},
      {"import", &Parser::refuse_loading},
      {"from", &Parser::refuse_loading},
      {"extends", &Parser::refuse_loading},
  };
  if (current().kind != TokenKind::name) fail_unexpected("the name of a tag");
  const auto found = kTags.find(current().text);
  if (found == kTags.end()) fail(fmt::format("unknown tag {}", in_quotes(current().text)));
  return (this->*found->second)();
}

StmtPtr Parser::refuse_loading() {
  fail(fmt::format("'{}' is not available: a chat template cannot load others", current().text));
}

StmtPtr Parser::parse_if() {
  StmtPtr statement = make_statement(StmtKind::if_else);
  take();
  while (true) {
    TupleOptions options;
    options.conditional = false;
    statement->values.push_back(parse_tuple(options));
    statement->bodies.push_back(parse_block_body({"elif", "else", "endif"}));
    const Token end = take();
    if (end.text == "elif") continue;
    if (end.text == "else") statement->bodies.push_back(parse_block_body_to_end("endif"));
    return statement;
  }
}

StmtPtr Parser::parse_for() {
  StmtPtr statement = make_statement(StmtKind::for_loop);
  take();
  statement->loop = std::make_unique<LoopNode>();
  TupleOptions target;
  target.end_name = "in";
  const size_t target_begin = position_;
  statement->target = parse_target(target);
  expect_name("in");
  TupleOptions values;
  values.conditional = false;
  values.end_name = "recursive";
  statement->values.push_back(parse_tuple(values));
  if (skip_name("if")) {
    statement->loop->condition = parse_expression();
    // The condition has its own copy of the target, which is short: read it once more.
    const size_t here = position_;
    position_ = target_begin;
    statement->loop->condition_target = parse_target(target);
    position_ = here;
  }
  statement->loop->recursive = skip_name("recursive");
  ++loops_;
  statement->bodies.push_back(parse_block_body({"endfor", "else"}));
  --loops_;
  if (take().text == "else") statement->bodies.push_back(parse_block_body_to_end("endfor"));
  return statement;
}

StmtPtr Parser::parse_set() {
  StmtPtr statement = make_statement(StmtKind::set);
  take();
  TupleOptions options;
  options.ns_attributes = true;
  statement->target = parse_target(options);
  if (skip_op("=")) {
    statement->values.push_back(parse_tuple({}));
    return statement;
  }
  statement->kind = StmtKind::set_block;
  statement->filter = parse_filter_chain(nullptr, false);
  statement->bodies.push_back(parse_block_body_to_end("endset"));
  return statement;
}

StmtPtr Parser::parse_with() {
  StmtPtr statement = make_statement(StmtKind::with);
  take();
  while (current().kind != TokenKind::block_end) {
    if (!statement->targets.empty()) expect_op(",");
    statement->targets.push_back(parse_target({}));
    expect_op("=");
    statement->values.push_back(parse_expression());
  }
  statement->bodies.push_back(parse_block_body_to_end("endwith"));
  return statement;
}

void Parser::parse_signature(MacroNode* macro) {
  expect_op("(");
  std::unordered_set<std::string> names;
  while (!at_op(")")) {
    if (!macro->parameters.empty()) expect_op(",");
    std::string name = take_name();
    if (!names.insert(name).second) {
      fail(fmt::format("duplicate parameter {}", in_quotes(name)));
    }
    if (skip_op("=")) {
      macro->defaults.push_back(parse_expression());
    } else if (!macro->defaults.empty()) {
      fail("non-default argument follows default argument");
    }
    macro->parameters.push_back(std::move(name));
  }
  expect_op(")");
}

StmtPtr Parser::parse_macro() {
  StmtPtr statement = make_statement(StmtKind::macro);
  take();
  statement->macro = std::make_unique<MacroNode>();
  statement->macro->name = statement->text = take_name();
  parse_signature(statement->macro.get());
  const int outer_loops = std::exchange(loops_, 0);
  statement->macro->body = parse_block_body_to_end("endmacro");
  loops_ = outer_loops;
  return statement;
}

StmtPtr Parser::parse_call_block() {
  StmtPtr statement = make_statement(StmtKind::call_block);
  take();
  statement->macro = std::make_unique<MacroNode>();
  if (at_op("(")) parse_signature(statement->macro.get());
  statement->values.push_back(parse_expression());
  if (statement->values[0]->kind != ExprKind::call) fail("expected a call");
  const int outer_loops = std::exchange(loops_, 0);
  statement->macro->body = parse_block_body_to_end("endcall");
  loops_ = outer_loops;
  return statement;
}

StmtPtr Parser::parse_filter_block() {
  StmtPtr statement = make_statement(StmtKind::filter_block);
  take();
  statement->values.push_back(parse_filter_chain(nullptr, true));
  statement->bodies.push_back(parse_block_body_to_end("endfilter"));
  return statement;
}

StmtPtr Parser::parse_generation() {
  StmtPtr statement = make_statement(StmtKind::generation);
  take();
  statement->macro = std::make_unique<MacroNode>();
  const int outer_loops = std::exchange(loops_, 0);
  statement->macro->body = parse_block_body_to_end("endgeneration");
  loops_ = outer_loops;
  return statement;
}

StmtPtr Parser::parse_block() {
  StmtPtr statement = make_statement(StmtKind::block);
  take();
  statement->text = take_name();
  if (!block_names_.insert(statement->text).second) {
    fail(fmt::format("block {} is defined twice", in_quotes(statement->text)));
  }
  if (skip_name("scoped") || at_name("required")) {
    fail("scoped and required blocks are not supported: a chat template has no parent");
  }
  const int outer_loops = std::exchange(loops_, 0);
  statement->bodies.push_back(parse_block_body_to_end("endblock"));
  loops_ = outer_loops;
  skip_name(statement->text);
  return statement;
}

StmtPtr Parser::parse_autoescape() {
  StmtPtr statement = make_statement(StmtKind::scope);
  take();
  const ExprPtr value = parse_expression();
  if (value->kind != ExprKind::constant || truthy(value->constant)) {
    fail("autoescape can only be switched off");
  }
  statement->bodies.push_back(parse_block_body_to_end("endautoescape"));
  return statement;
}

StmtPtr Parser::parse_print() {
  StmtPtr statement = make_statement(StmtKind::output);
  take();
  while (current().kind != TokenKind::block_end) {
    if (!statement->values.empty()) expect_op(",");
    statement->values.push_back(parse_expression());
  }
  return statement;
}

StmtPtr Parser::parse_break() {
  if (loops_ == 0) fail("'break' outside of a loop");
  StmtPtr statement = make_statement(StmtKind::break_loop);
  take();
  return statement;
}

StmtPtr Parser::parse_continue() {
  if (loops_ == 0) fail("'continue' outside of a loop");
  StmtPtr statement = make_statement(StmtKind::continue_loop);
  take();
  return statement;
}

}  // namespace klotski::jinja
