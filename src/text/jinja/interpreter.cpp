#include "text/jinja/interpreter.h"

#include <utility>

#include "base/error.h"
#include "text/jinja/format.h"
#include "text/jinja/from_json.h"
#include "text/jinja/loop.h"
#include "text/jinja/macro.h"

namespace klotski::jinja {
namespace {

// Draws from the iterable of a loop the items that its condition lets through.
class FilteredItems : public IteratorObject {
 public:
  FilteredItems(Interpreter* interpreter, const LoopNode* loop,
                std::shared_ptr<IteratorObject> source, std::shared_ptr<Frame> frame)
      : IteratorObject(1 + source->depth()),
        interpreter_(interpreter),
        loop_(loop),
        source_(std::move(source)),
        frame_(std::move(frame)) {}

  bool next(Value* out) override {
    while (source_->next(out)) {
      if (interpreter_->loop_condition_holds(*loop_, *out, frame_.get())) return true;
    }
    return false;
  }

 private:
  Interpreter* interpreter_;
  const LoopNode* loop_;
  std::shared_ptr<IteratorObject> source_;
  std::shared_ptr<Frame> frame_;
};

}  // namespace

Interpreter::Interpreter(const Template& tree, const TemplateLimits& limits,
                         const std::optional<std::tm>& now)
    : tree_(tree), runtime_(limits, now) {}

std::string Interpreter::render(const OrderedJson& context) {
  for (const auto& [name, value] : context.items()) {
    context_[name] = value_from_json(runtime_, value);
  }
  std::string text;
  out_ = &text;
  const auto frame = make_frame(tree_.slot_count, nullptr);
  enter_scope(tree_.loads, frame.get());
  execute(tree_.body, frame.get());
  return text;
}

void Interpreter::emit(std::string_view text) {
  runtime_.budget().scan(text.size());
  runtime_.budget().output(out_->size() + text.size());
  // Captured text is a value in the making: blocks inside each other hold one each.
  if (captures_ > 0) runtime_.budget().allocate(text.size());
  *out_ += text;
}

void Interpreter::emit_string(const Value& value) {
  if (!value.is_string()) raise("a block gave a value of type {}, not text", type_name(value));
  emit(value.text());
}

Value& Interpreter::variable(const Slot& slot, Frame* frame) {
  for (int hop = 0; hop < slot.hops; ++hop) frame = frame->parent;
  return frame->slots[static_cast<size_t>(slot.index)];
}

Value Interpreter::context_variable(const std::string& name) const {
  if (const auto found = exports_.find(name); found != exports_.end()) return found->second;
  if (const auto found = context_.find(name); found != context_.end()) return found->second;
  return global_function(name);
}

std::shared_ptr<Frame> Interpreter::make_frame(int slot_count, Frame* outer) {
  runtime_.budget().allocate(sizeof(Frame) + static_cast<uint64_t>(slot_count) * sizeof(Value));
  return std::make_shared<Frame>(slot_count, outer);
}

void Interpreter::enter_scope(const ScopeLoads& loads, Frame* frame) {
  runtime_.budget().step(loads.size());
  for (const ScopeLoad& load : loads) {
    if (load.from == ScopeLoad::From::parameter) continue;
    Value& target = variable(load.slot, frame);
    target = load.from == ScopeLoad::From::context ? context_variable(load.name)
             : load.from == ScopeLoad::From::outer ? variable(load.outer, frame)
                                                   : Value();
  }
}

void Interpreter::leave_scope(const ScopeLoads& loads, Frame* frame) {
  runtime_.budget().step(loads.size());
  for (const ScopeLoad& load : loads) variable(load.slot, frame) = Value();
}

Interpreter::Flow Interpreter::execute(const Body& body, Frame* frame) {
  for (const StmtPtr& statement : body) {
    if (statement->kind == StmtKind::text) {
      emit(statement->text);
      continue;
    }
    const Flow flow = execute(*statement, frame);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::execute(const Stmt& statement, Frame* frame) {
  const DepthGuard guard(runtime_.depth(), runtime_.budget().max_depth());
  runtime_.budget().step();
  line_ = statement.line;
  printed_ = nullptr;
  switch (statement.kind) {
    case StmtKind::text:
      emit(statement.text);
      break;
    case StmtKind::output:
      execute_output(statement, frame);
      break;
    case StmtKind::if_else:
      return execute_if(statement, frame);
    case StmtKind::for_loop:
      execute_for(statement, frame);
      break;
    case StmtKind::set:
      execute_set(statement, frame);
      break;
    case StmtKind::set_block:
      execute_set_block(statement, frame);
      break;
    case StmtKind::with:
      execute_with(statement, frame);
      break;
    case StmtKind::macro:
      execute_macro(statement, frame);
      break;
    case StmtKind::call_block:
    case StmtKind::generation:
      execute_call_block(statement, frame);
      break;
    case StmtKind::filter_block:
      execute_filter_block(statement, frame);
      break;
    case StmtKind::block:
      execute_block(statement);
      break;
    case StmtKind::scope: {
      enter_scope(statement.loads, frame);
      const Flow flow = execute(statement.bodies[0], frame);
      leave_scope(statement.loads, frame);
      return flow;
    }
    case StmtKind::break_loop:
      return Flow::break_loop;
    case StmtKind::continue_loop:
      return Flow::continue_loop;
  }
  return Flow::next;
}

void Interpreter::execute_output(const Stmt& statement, Frame* frame) {
  for (const ExprPtr& expr : statement.values) {
    printed_ = expr.get();
    const Value value = evaluate(*expr, frame);
    if (value.is_string()) {
      emit(value.text());
    } else {
      emit(to_text(runtime_, value));
    }
  }
}

Interpreter::Flow Interpreter::execute_if(const Stmt& statement, Frame* frame) {
  for (size_t i = 0; i < statement.values.size(); ++i) {
    if (truthy(evaluate(*statement.values[i], frame))) {
      return execute(statement.bodies[i], frame);
    }
  }
  if (statement.bodies.size() == statement.values.size()) return Flow::next;
  return execute(statement.bodies.back(), frame);
}

void Interpreter::execute_for(const Stmt& statement, Frame* frame) {
  const LoopNode& node = *statement.loop;
  const Value iterable = evaluate(*statement.values[0], frame);
  if (node.recursive) {
    emit(run_recursive_loop(statement, iterable, frame, 0).text());
    return;
  }
  const Value items = filtered_items(node, iterable, frame);
  LoopObject* loop = node.loop ? runtime_.own(LoopObject(runtime_, items, 0)) : nullptr;
  run_loop(statement, items, frame, loop);
}

Value Interpreter::filtered_items(const LoopNode& loop, const Value& iterable, Frame* frame) {
  if (loop.condition == nullptr) return iterable;
  const auto inner = make_frame(loop.condition_slots, frame);
  enter_scope(loop.condition_loads, inner.get());
  return runtime_.iterator(
      std::make_shared<FilteredItems>(this, &loop, iterate(runtime_, iterable), inner));
}

bool Interpreter::loop_condition_holds(const LoopNode& loop, const Value& item, Frame* frame) {
  runtime_.budget().step();
  assign(*loop.condition_target, item, frame);
  return truthy(evaluate(*loop.condition, frame));
}

void Interpreter::run_loop(const Stmt& statement, const Value& iterable, Frame* frame,
                           LoopObject* loop) {
  const LoopNode& node = *statement.loop;
  const auto items = loop == nullptr ? iterate(runtime_, iterable) : nullptr;
  const bool completed = run_iterations(statement, items.get(), loop, frame);
  if (loop != nullptr) loop->close();
  const bool has_else = statement.bodies.size() > 1;
  leave_scope(statement.loads, frame);
  if (!has_else || completed) return;
  enter_scope(node.else_loads, frame);
  execute(statement.bodies[1], frame);
  leave_scope(node.else_loads, frame);
}

// True if some iteration ran to its end: Jinja takes the else branch otherwise, also when the only
// iterations were left by break or continue.
bool Interpreter::run_iterations(const Stmt& statement, IteratorObject* items, LoopObject* loop,
                                 Frame* frame) {
  const LoopNode& node = *statement.loop;
  if (loop != nullptr) variable(*node.loop, frame) = Value();
  bool completed = false;
  Value item;
  while (loop != nullptr ? loop->next(&item) : items->next(&item)) {
    runtime_.budget().step();
    line_ = statement.line;
    assign(*statement.target, item, frame);
    if (loop != nullptr) variable(*node.loop, frame) = Value::borrowed(Kind::loop, loop);
    enter_scope(statement.loads, frame);
    const Flow flow = execute(statement.bodies[0], frame);
    if (flow == Flow::break_loop) break;
    if (flow == Flow::next) completed = true;
  }
  return completed;
}

template <typename Write>
Value Interpreter::captured(const Write& write) {
  std::string text;
  std::string* const before = std::exchange(out_, &text);
  ++captures_;
  write();
  --captures_;
  out_ = before;
  // emit has paid for the text.
  runtime_.budget().allocate(sizeof(StringObject));
  return Value::string(std::move(text));
}

Value Interpreter::run_recursive_loop(const Stmt& statement, const Value& iterable, Frame* outer,
                                      int64_t depth0) {
  const LoopNode& node = *statement.loop;
  capture(outer);
  const Value items = filtered_items(node, iterable, outer);
  const auto frame = make_frame(node.function_slots, outer);
  LoopObject* loop = runtime_.own(LoopObject(runtime_, items, depth0));
  loop->interpreter = this;
  loop->statement = &statement;
  loop->outer = outer;
  return captured([&] { run_loop(statement, items, frame.get(), loop); });
}

Value Interpreter::call_loop(LoopObject& loop, const Arguments& arguments) {
  if (loop.statement == nullptr) raise("the loop must have the 'recursive' marker to be called");
  const BoundArguments bound("loop", "iterable!", arguments);
  const DepthGuard guard(runtime_.depth(), runtime_.budget().max_depth());
  return run_recursive_loop(*loop.statement, bound[0], loop.outer, loop.depth0() + 1);
}

void Interpreter::require_namespaces(const Expr& target, Frame* frame) {
  if (target.kind == ExprKind::ns_attribute && !variable(target.slot, frame).is(Kind::name_space)) {
    raise("cannot assign attribute on non-namespace object {}", in_quotes(target.name));
  }
  for (const ExprPtr& item : target.items) require_namespaces(*item, frame);
}

void Interpreter::assign(const Expr& target, const Value& value, Frame* frame) {
  if (target.kind == ExprKind::name) {
    variable(target.slot, frame) = value;
    return;
  }
  if (target.kind == ExprKind::ns_attribute) {
    runtime_.budget().allocate(2 * sizeof(Value));
    value_depth(value);
    variable(target.slot, frame)
        .mutable_as<NamespaceObject>()
        .attributes.set(target.constant, value);
    return;
  }
  const std::vector<Value> parts = elements(runtime_, value);
  if (parts.size() != target.items.size()) {
    raise("cannot unpack {} values into {} names", parts.size(), target.items.size());
  }
  for (size_t i = 0; i < parts.size(); ++i) assign(*target.items[i], parts[i], frame);
}

void Interpreter::export_names(const Expr& target, Frame* frame) {
  if (target.kind == ExprKind::name) exports_[target.name] = variable(target.slot, frame);
  for (const ExprPtr& item : target.items) export_names(*item, frame);
}

void Interpreter::execute_set(const Stmt& statement, Frame* frame) {
  require_namespaces(*statement.target, frame);
  assign(*statement.target, evaluate(*statement.values[0], frame), frame);
  if (statement.top_level) export_names(*statement.target, frame);
}

Value Interpreter::captured_text(const Body& body, Frame* frame) {
  return captured([&] { execute(body, frame); });
}

void Interpreter::execute_set_block(const Stmt& statement, Frame* frame) {
  enter_scope(statement.loads, frame);
  Value value = captured_text(statement.bodies[0], frame);
  if (statement.filter != nullptr) {
    filter_input_ = std::move(value);
    value = evaluate(*statement.filter, frame);
  }
  require_namespaces(*statement.target, frame);
  assign(*statement.target, value, frame);
  if (statement.top_level) export_names(*statement.target, frame);
  leave_scope(statement.loads, frame);
}

void Interpreter::execute_with(const Stmt& statement, Frame* frame) {
  enter_scope(statement.loads, frame);
  for (size_t i = 0; i < statement.targets.size(); ++i) {
    assign(*statement.targets[i], evaluate(*statement.values[i], frame), frame);
  }
  execute(statement.bodies[0], frame);
  leave_scope(statement.loads, frame);
}

void Interpreter::execute_filter_block(const Stmt& statement, Frame* frame) {
  enter_scope(statement.loads, frame);
  filter_input_ = captured_text(statement.bodies[0], frame);
  emit_string(evaluate(*statement.values[0], frame));
  leave_scope(statement.loads, frame);
}

void Interpreter::execute_block(const Stmt& statement) {
  const auto frame = make_frame(statement.slot_count, nullptr);
  enter_scope(statement.loads, frame.get());
  execute(statement.bodies[0], frame.get());
}

void Interpreter::capture(Frame* frame) {
  for (; frame != nullptr && !frame->captured; frame = frame->parent) {
    runtime_.budget().allocate(sizeof(Frame) + frame->slots.size() * sizeof(Value));
    frame->captured = true;
    captured_.push_back(frame->shared_from_this());
  }
}

Value Interpreter::make_macro(const MacroNode& macro, Frame* frame) {
  capture(frame);
  runtime_.budget().allocate(sizeof(MacroObject));
  return Value::object<CallableObject>(Kind::callable,
                                       std::make_shared<MacroObject>(this, &macro, frame));
}

void Interpreter::execute_macro(const Stmt& statement, Frame* frame) {
  const Value macro = make_macro(*statement.macro, frame);
  variable(statement.slot, frame) = macro;
  if (statement.top_level) exports_[statement.text] = macro;
}

void Interpreter::execute_call_block(const Stmt& statement, Frame* frame) {
  const Value caller = make_macro(*statement.macro, frame);
  if (statement.kind == StmtKind::generation) {
    emit(call_macro(*statement.macro, frame, {}).text());
    return;
  }
  emit_string(evaluate_call(*statement.values[0], frame, caller));
}

}  // namespace klotski::jinja
