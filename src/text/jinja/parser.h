#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace klotski::jinja {

// Depth of parentheses, brackets and blocks inside each other. Keeps the parser, and all code that
// walks the tree afterwards, within a small stack.
inline constexpr int kMaxNesting = 64;
// How high a tree may grow where that needs no recursion to parse: a.b.c.d, x|f|g|h.
inline constexpr int kMaxExprDepth = 200;

// Reads tokens into a tree, by recursive descent with Jinja's grammar. Throws SyntaxError.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Body parse_template();

 private:
  class Nesting;
  struct TupleOptions {
    bool names_only = false;
    bool conditional = true;
    bool parentheses = false;
    bool ns_attributes = false;
    std::string_view end_name = {};
  };

  // Tokens (parser.cpp)
  const Token& current() const { return tokens_[position_]; }
  const Token& look() const;
  Token take();
  bool at_op(std::string_view op) const;
  bool at_name(std::string_view name) const;
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_op(std::string_view op);
  void expect_name(std::string_view name);
  void expect(TokenKind kind, std::string_view what);
  std::string take_name();
  [[noreturn]] void fail(const std::string& message) const;
  [[noreturn]] void fail_unexpected(std::string_view expected) const;

  // Expressions (parser.cpp)
  ExprPtr parse_expression() { return parse_conditional(); }
  ExprPtr parse_conditional();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filter = true);
  ExprPtr parse_primary(bool ns_attributes = false);
  ExprPtr parse_name(bool ns_attributes);
  ExprPtr parse_tuple(const TupleOptions& options);
  bool at_tuple_end(std::string_view end_name) const;
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr node);
  ExprPtr parse_filters_and_tests(ExprPtr node);
  ExprPtr parse_attribute(ExprPtr node);
  ExprPtr parse_subscript(ExprPtr node);
  ExprPtr parse_slice(ExprPtr node, ExprPtr start);
  ExprPtr parse_call(ExprPtr node);
  ExprPtr parse_filter_chain(ExprPtr node, bool start_inline);
  ExprPtr parse_test(ExprPtr node);
  std::unique_ptr<CallArguments> parse_arguments();
  void parse_argument(CallArguments* arguments, std::unordered_set<std::string>* keywords,
                      int line);
  std::string parse_dotted_name();
  using Level = ExprPtr (Parser::*)();
  ExprPtr parse_arithmetic(Level operand,
                           const std::vector<std::pair<std::string_view, Operator>>&);
  ExprPtr make(ExprKind kind, int line) const;
  // Counts the node's depth from its parts; refuses trees that are too high.
  ExprPtr finish(ExprPtr node) const;

  // Statements (parser_statements.cpp)
  using EndNames = std::vector<std::string_view>;
  Body parse_body(const EndNames& end_names);
  Body parse_block_body(const EndNames& end_names);
  Body parse_block_body_to_end(std::string_view end_name);
  StmtPtr parse_output();
  StmtPtr parse_statement();
  StmtPtr parse_if();
  StmtPtr parse_for();
  StmtPtr parse_set();
  StmtPtr parse_with();
  StmtPtr parse_macro();
  StmtPtr parse_call_block();
  StmtPtr parse_filter_block();
  StmtPtr parse_generation();
  StmtPtr parse_block();
  StmtPtr parse_autoescape();
  StmtPtr parse_print();
  StmtPtr parse_break();
  StmtPtr parse_continue();
  StmtPtr refuse_loading();
  void parse_signature(MacroNode* macro);
  ExprPtr parse_target(const TupleOptions& options);
  StmtPtr make_statement(StmtKind kind) const;

  std::vector<Token> tokens_;
  size_t position_ = 0;
  int nesting_ = 0;
  int loops_ = 0;  // open loops of the innermost function, for break and continue
  std::unordered_set<std::string> block_names_;
};

class Parser::Nesting {
 public:
  explicit Nesting(Parser* parser) : parser_(parser) {
    if (parser_->nesting_ >= kMaxNesting) parser_->fail("nested too deeply");
    ++parser_->nesting_;
  }
  ~Nesting() { --parser_->nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Parser* parser_;
};

}  // namespace klotski::jinja
