#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace klotski::jinja {

class LoopObject;

// The variables of one running function: the template, a macro, a recursive loop.
struct Frame : std::enable_shared_from_this<Frame> {
  Frame(int slot_count, Frame* outer) : slots(static_cast<size_t>(slot_count)), parent(outer) {}

  std::vector<Value> slots;
  Frame* parent;          // the function around this one in the source
  bool captured = false;  // a macro made here may run after the function has ended
};

// Walks the tree and writes the text. One object renders once.
class Interpreter {
 public:
  Interpreter(const Template& tree, const TemplateLimits& limits,
              const std::optional<std::tm>& now);

  // Throws Failure; line() then tells where.
  std::string render(const OrderedJson& context);
  int line() const { return line_; }

  // Called by the values that run template code.
  Value call_macro(const MacroNode& macro, Frame* outer, Arguments arguments);
  Value call_loop(LoopObject& loop, const Arguments& arguments);
  bool loop_condition_holds(const LoopNode& loop, const Value& item, Frame* frame);

 private:
  enum class Flow { next, break_loop, continue_loop };

  // Statements (interpreter.cpp)
  Flow execute(const Body& body, Frame* frame);
  Flow execute(const Stmt& statement, Frame* frame);
  Flow execute_if(const Stmt& statement, Frame* frame);
  void execute_output(const Stmt& statement, Frame* frame);
  void execute_for(const Stmt& statement, Frame* frame);
  void execute_set(const Stmt& statement, Frame* frame);
  void execute_set_block(const Stmt& statement, Frame* frame);
  void execute_with(const Stmt& statement, Frame* frame);
  void execute_macro(const Stmt& statement, Frame* frame);
  void execute_call_block(const Stmt& statement, Frame* frame);
  void execute_filter_block(const Stmt& statement, Frame* frame);
  void execute_block(const Stmt& statement);
  void run_loop(const Stmt& statement, const Value& iterable, Frame* frame, LoopObject* loop);
  bool run_iterations(const Stmt& statement, IteratorObject* items, LoopObject* loop, Frame* frame);
  Value filtered_items(const LoopNode& loop, const Value& iterable, Frame* frame);
  Value run_recursive_loop(const Stmt& statement, const Value& iterable, Frame* outer,
                           int64_t depth0);
  // The text that `write` emits, as a value.
  template <typename Write>
  Value captured(const Write& write);
  Value captured_text(const Body& body, Frame* frame);
  void emit(std::string_view text);
  // Emits the result of a filter or call block, which Jinja does not convert to text.
  void emit_string(const Value& value);

  // Variables (interpreter.cpp)
  std::shared_ptr<Frame> make_frame(int slot_count, Frame* outer);
  void enter_scope(const ScopeLoads& loads, Frame* frame);
  void leave_scope(const ScopeLoads& loads, Frame* frame);
  static Value& variable(const Slot& slot, Frame* frame);
  Value context_variable(const std::string& name) const;
  void require_namespaces(const Expr& target, Frame* frame);
  void assign(const Expr& target, const Value& value, Frame* frame);
  void export_names(const Expr& target, Frame* frame);
  void capture(Frame* frame);
  Value make_macro(const MacroNode& macro, Frame* frame);
  void bind_parameters(const MacroNode& macro, Arguments* arguments, Frame* frame);

  // Expressions (evaluate.cpp)
  Value evaluate(const Expr& expr, Frame* frame);
  Value evaluate_kind(const Expr& expr, Frame* frame);
  Value evaluate_name(const Expr& expr, Frame* frame);
  std::vector<Value> evaluate_items(const Expr& expr, Frame* frame);
  Value evaluate_dict(const Expr& expr, Frame* frame);
  Value evaluate_slice(const Expr& expr, Frame* frame);
  Value evaluate_call(const Expr& expr, Frame* frame, const Value& caller);
  Value evaluate_filter(const Expr& expr, Frame* frame);
  Value evaluate_test(const Expr& expr, Frame* frame);
  Value evaluate_arithmetic(const Expr& expr, Frame* frame);
  Value evaluate_compare(const Expr& expr, Frame* frame);
  Value evaluate_concat(const Expr& expr, Frame* frame);
  Value evaluate_logic(const Expr& expr, Frame* frame);
  Value evaluate_conditional(const Expr& expr, Frame* frame);
  Arguments evaluate_arguments(const CallArguments* arguments, Frame* frame);

  const Template& tree_;
  Runtime runtime_;
  std::unordered_map<std::string, Value> context_;
  std::unordered_map<std::string, Value> exports_;  // assignments of the top level, for blocks
  std::vector<std::shared_ptr<Frame>> captured_;
  std::string* out_ = nullptr;
  int captures_ = 0;               // 0: out_ is the output itself
  Value filter_input_;             // the text of the block that a filter chain begins with
  const Expr* printed_ = nullptr;  // the innermost output statement's expression
  int line_ = 1;
};

// Built-in functions such as range; missing where there is none of that name.
Value global_function(const std::string& name);

}  // namespace klotski::jinja
