#include "text/jinja/scope.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "text/jinja/filters.h"
#include "text/jinja/lexer.h"
#include "text/jinja/symbols.h"
#include "text/jinja/tests.h"

namespace klotski::jinja {
namespace {

// Calls `visit` for the parts of an expression, the null ones left out.
template <typename Node, typename Visit>
void for_each_part(Node& expr, const Visit& visit) {
  for (auto& item : expr.items) {
    if (item != nullptr) visit(*item);
  }
  if (expr.arguments == nullptr) return;
  for (auto& item : expr.arguments->positional) visit(*item);
  for (auto& item : expr.arguments->keyword) visit(*item.second);
  if (expr.arguments->rest != nullptr) visit(*expr.arguments->rest);
  if (expr.arguments->rest_keywords != nullptr) visit(*expr.arguments->rest_keywords);
}

// Finds which of some special names a body reads without having assigned them before.
class UndeclaredNames {
 public:
  explicit UndeclaredNames(std::set<std::string> names) : names_(std::move(names)) {}
  bool found(const std::string& name) const { return found_.count(name) != 0; }

  void visit(const Body& body) {
    for (const StmtPtr& statement : body) visit(*statement);
  }

 private:
  void visit(const Stmt& s) {
    if (s.kind == StmtKind::block) return;
    if (s.target != nullptr) store(*s.target);
    for (const ExprPtr& target : s.targets) store(*target);
    for (const ExprPtr& value : s.values) load(*value);
    if (s.filter != nullptr) load(*s.filter);
    if (s.macro != nullptr) {
      for (const std::string& name : s.macro->parameters) names_.erase(name);
      for (const ExprPtr& value : s.macro->defaults) load(*value);
      visit(s.macro->body);
    }
    for (const Body& body : s.bodies) visit(body);
    if (s.loop != nullptr && s.loop->condition != nullptr) load(*s.loop->condition);
  }

  void store(const Expr& target) {
    if (target.kind == ExprKind::name) names_.erase(target.name);
    for (const ExprPtr& item : target.items) store(*item);
  }

  void load(const Expr& expr) {
    if (expr.kind == ExprKind::name && names_.count(expr.name) != 0) found_.insert(expr.name);
    for_each_part(expr, [this](const Expr& part) { load(part); });
  }

  std::set<std::string> names_;
  std::set<std::string> found_;
};

// First pass over one scope: which names it reads and assigns. Inner scopes are not entered.
class NameCollector {
 public:
  explicit NameCollector(Symbols* symbols) : symbols_(symbols) {}

  void load(const Expr& expr) {
    if (expr.kind == ExprKind::name) symbols_->load(expr.name);
    for_each_part(expr, [this](const Expr& part) { load(part); });
  }

  void store(const Expr& target, bool as_parameter) {
    if (target.kind == ExprKind::ns_attribute) {
      symbols_->load(target.name);
    } else if (target.kind == ExprKind::name && as_parameter) {
      symbols_->declare_parameter(target.name);
    } else if (target.kind == ExprKind::name) {
      symbols_->store(target.name);
    }
    for (const ExprPtr& item : target.items) store(*item, as_parameter);
  }

  void visit(const Body& body) {
    for (const StmtPtr& statement : body) visit(*statement);
  }

 private:
  void visit(const Stmt& s) {
    if (s.kind == StmtKind::if_else) return visit_if(s, 0);
    for (const ExprPtr& value : s.values) load(*value);
    if (s.kind == StmtKind::set || s.kind == StmtKind::set_block) store(*s.target, false);
    if (s.kind == StmtKind::macro) symbols_->store(s.text);
  }

  // An elif is an if inside the else branch.
  void visit_if(const Stmt& s, size_t branch) {
    load(*s.values[branch]);
    const size_t begun = symbols_->begin_branches();
    visit(s.bodies[branch]);
    if (branch == 0) {
      for (size_t i = 1; i < s.values.size(); ++i) visit_if(s, i);
      if (s.bodies.size() > s.values.size()) visit(s.bodies.back());
    }
    symbols_->end_branches(begun);
  }

  Symbols* symbols_;
};

// Second pass: writes the slots into the tree, scope by scope.
class Resolver {
 public:
  void resolve(Template* tree) {
    Symbols symbols(nullptr, add_function(-1), &functions_);
    NameCollector(&symbols).visit(tree->body);
    Frame frame{&symbols, true, false};
    resolve(&tree->body, frame);
    tree->loads = symbols.loads();
    tree->slot_count = slot_count(symbols);
  }

 private:
  struct Frame {
    Symbols* symbols;
    bool top_level;
    // Inside an if an unknown filter is an error only when it is reached, as in Jinja.
    bool soft;
  };

  int add_function(int parent) {
    const int depth = parent < 0 ? 0 : functions_[static_cast<size_t>(parent)].depth + 1;
    functions_.push_back({parent, depth, {}});
    return static_cast<int>(functions_.size()) - 1;
  }

  int slot_count(const Symbols& symbols) const {
    return static_cast<int>(functions_[static_cast<size_t>(symbols.function())].slots.size());
  }

  Symbols inner(const Frame& frame) {
    return Symbols(frame.symbols, frame.symbols->function(), &functions_);
  }

  Symbols inner_function(const Frame& frame) {
    return Symbols(frame.symbols, add_function(frame.symbols->function()), &functions_);
  }

  void resolve(Body* body, const Frame& frame) {
    for (StmtPtr& statement : *body) resolve(statement.get(), frame);
  }

  void resolve(Stmt* s, const Frame& frame) {
    s->top_level = frame.top_level;
    switch (s->kind) {
      case StmtKind::if_else:
        return resolve_if(s, frame);
      case StmtKind::for_loop:
        return resolve_for(s, frame);
      case StmtKind::macro:
        s->slot = frame.symbols->slot(s->text);
        return resolve_macro(s->macro.get(), s->line, frame);
      case StmtKind::call_block:
      case StmtKind::generation:
        resolve_macro(s->macro.get(), s->line, frame);
        break;
      case StmtKind::set_block:
      case StmtKind::filter_block:
      case StmtKind::with:
      case StmtKind::scope:
        return resolve_scope(s, frame);
      case StmtKind::block:
        return resolve_block(s);
      default:
        break;
    }
    for (ExprPtr& value : s->values) resolve(value.get(), frame);
    if (s->target != nullptr) resolve_target(s->target.get(), frame);
  }

  void resolve_if(Stmt* s, const Frame& frame) {
    const Frame soft{frame.symbols, frame.top_level, true};
    for (ExprPtr& value : s->values) resolve(value.get(), soft);
    for (Body& body : s->bodies) resolve(&body, soft);
  }

  void resolve_scope(Stmt* s, const Frame& frame) {
    Symbols symbols = inner(frame);
    NameCollector collector(&symbols);
    for (const ExprPtr& target : s->targets) collector.store(*target, true);
    collector.visit(s->bodies[0]);
    if (s->kind == StmtKind::filter_block) collector.load(*s->values[0]);
    if (s->filter != nullptr) collector.load(*s->filter);
    const Frame inside{&symbols, false, false};
    for (ExprPtr& target : s->targets) resolve_target(target.get(), inside);
    for (ExprPtr& value : s->values) {
      resolve(value.get(), s->kind == StmtKind::filter_block ? inside : frame);
    }
    resolve(&s->bodies[0], inside);
    if (s->filter != nullptr) resolve(s->filter.get(), inside);
    if (s->target != nullptr) resolve_target(s->target.get(), frame);
    s->loads = symbols.loads();
  }

  void resolve_block(Stmt* s) {
    Symbols symbols(nullptr, add_function(-1), &functions_);
    NameCollector(&symbols).visit(s->bodies[0]);
    const int outer_loops = std::exchange(loops_, 0);
    resolve(&s->bodies[0], {&symbols, false, false});
    loops_ = outer_loops;
    s->loads = symbols.loads();
    s->slot_count = slot_count(symbols);
  }

  void resolve_for(Stmt* s, const Frame& frame) {
    LoopNode& loop = *s->loop;
    ++loops_;
    resolve(s->values[0].get(), frame);
    if (loop.condition != nullptr) resolve_condition(&loop, frame);
    Symbols symbols = loop.recursive ? inner_function(frame) : inner(frame);
    Symbols else_symbols(frame.symbols, symbols.function(), &functions_);
    UndeclaredNames special({"loop"});
    special.visit(s->bodies[0]);
    const bool extended = loop.recursive || special.found("loop");
    if (extended) symbols.declare_parameter("loop");
    NameCollector collector(&symbols);
    collector.store(*s->target, true);
    collector.visit(s->bodies[0]);
    const Frame inside{&symbols, false, false};
    if (extended) loop.loop = symbols.slot("loop");
    resolve_target(s->target.get(), inside);
    resolve(&s->bodies[0], inside);
    if (s->bodies.size() > 1) {
      NameCollector(&else_symbols).visit(s->bodies[1]);
      resolve(&s->bodies[1], {&else_symbols, false, false});
    }
    s->loads = symbols.loads();
    loop.else_loads = else_symbols.loads();
    loop.function_slots = slot_count(symbols);
    --loops_;
  }

  void resolve_condition(LoopNode* loop, const Frame& frame) {
    Symbols symbols = inner_function(frame);
    NameCollector collector(&symbols);
    collector.store(*loop->condition_target, true);
    collector.load(*loop->condition);
    const Frame inside{&symbols, false, false};
    resolve_target(loop->condition_target.get(), inside);
    resolve(loop->condition.get(), inside);
    loop->condition_loads = symbols.loads();
    loop->condition_slots = slot_count(symbols);
  }

  void resolve_macro(MacroNode* macro, int line, const Frame& frame) {
    Symbols symbols = inner_function(frame);
    NameCollector collector(&symbols);
    for (const std::string& name : macro->parameters) symbols.declare_parameter(name);
    for (const ExprPtr& value : macro->defaults) collector.load(*value);
    collector.visit(macro->body);
    declare_special(macro, line, &symbols);
    const Frame inside{&symbols, false, false};
    for (const std::string& name : macro->parameters) {
      macro->slots.push_back(symbols.slot(name));
    }
    for (ExprPtr& value : macro->defaults) resolve(value.get(), inside);
    resolve(&macro->body, inside);
    macro->loads = symbols.loads();
    macro->slot_count = slot_count(symbols);
  }

  // caller, kwargs and varargs become parameters of the macros that mention them.
  static void declare_special(MacroNode* macro, int line, Symbols* symbols) {
    const auto declared = [macro](std::string_view name) {
      return std::find(macro->parameters.begin(), macro->parameters.end(), name) !=
             macro->parameters.end();
    };
    const auto declare = [symbols](const std::string& name) {
      symbols->declare_parameter(name);
      return symbols->slot(name);
    };
    UndeclaredNames special({"caller", "kwargs", "varargs"});
    special.visit(macro->body);
    macro->explicit_caller = declared("caller");
    macro->accesses_caller = special.found("caller");
    if (macro->accesses_caller && !macro->explicit_caller) macro->caller = declare("caller");
    if (macro->accesses_caller && macro->explicit_caller) require_caller_default(*macro, line);
    if (special.found("kwargs") && !declared("kwargs")) macro->kwargs = declare("kwargs");
    if (special.found("varargs") && !declared("varargs")) macro->varargs = declare("varargs");
  }

  static void require_caller_default(const MacroNode& macro, int line) {
    const size_t without_default = macro.parameters.size() - macro.defaults.size();
    for (size_t i = 0; i < without_default; ++i) {
      if (macro.parameters[i] == "caller") {
        throw SyntaxError(line, "the parameter 'caller' must be omitted or have a default");
      }
    }
  }

  void resolve_target(Expr* target, const Frame& frame) {
    if (target->kind == ExprKind::tuple) {
      for (ExprPtr& item : target->items) resolve_target(item.get(), frame);
      return;
    }
    if (target->kind == ExprKind::name && target->name == "loop" && loops_ > 0) {
      throw SyntaxError(target->line, "cannot assign to the special variable 'loop' in a loop");
    }
    target->slot = frame.symbols->slot(target->name);
  }

  void resolve(Expr* expr, const Frame& frame) {
    if (expr->kind == ExprKind::name) expr->slot = frame.symbols->slot(expr->name);
    if (expr->kind == ExprKind::filter) {
      expr->filter = find_filter(expr->name);
      if (expr->filter == nullptr && !frame.soft) fail_unknown(*expr, "filter");
    }
    if (expr->kind == ExprKind::test) {
      expr->test = find_test(expr->name);
      if (expr->test == nullptr && !frame.soft) fail_unknown(*expr, "test");
    }
    const bool soft = frame.soft || expr->kind == ExprKind::conditional;
    const Frame inside{frame.symbols, frame.top_level, soft};
    for_each_part(*expr, [&](Expr& part) { resolve(&part, inside); });
  }

  [[noreturn]] static void fail_unknown(const Expr& expr, std::string_view what) {
    throw SyntaxError(expr.line, fmt::format("unknown {} {}", what, in_quotes(expr.name)));
  }

  std::vector<FunctionSlots> functions_;
  int loops_ = 0;  // around the current place
};

}  // namespace

void resolve_names(Template* tree) { Resolver().resolve(tree); }

}  // namespace klotski::jinja
