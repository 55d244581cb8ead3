#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace klotski::jinja {

struct FilterEntry;
struct TestEntry;

// The place of a variable: `hops` functions outwards, then a slot of that function's frame.
struct Slot {
  int hops = 0;
  int index = -1;
};

enum class ExprKind : uint8_t {
  constant,     // constant
  name,         // name, slot
  list,         // items
  tuple,        // items
  dict,         // items: key, value, key, value, ...
  attribute,    // items[0], name
  subscript,    // items[0], items[1]
  slice,        // items[0], then start, stop, step, each of which may be null
  call,         // items[0], arguments
  filter,       // items[0] (null in a filter block: the block's text), name, arguments
  test,         // items[0], name, arguments
  arithmetic,   // items[0] op items[1] op items[2] ..., from left to right
  compare,      // items[0] op items[1] op items[2] ..., as Python chains comparisons
  concat,       // items joined by ~
  all_of,       // items joined by and
  any_of,       // items joined by or
  negation,     // not items[0]
  minus,        // -items[0]
  plus,         // +items[0]
  conditional,  // items: condition, value, otherwise (may be null)
  ns_attribute  // target only: name, attribute in `constant`
};

enum class Operator : uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keyword;
  ExprPtr rest;           // *rest
  ExprPtr rest_keywords;  // **rest_keywords
};

struct Expr {
  ExprKind kind;
  int line;
  int depth = 1;
  std::string name;
  Value constant;
  std::vector<ExprPtr> items;
  std::vector<Operator> operators;
  std::unique_ptr<CallArguments> arguments;
  Slot slot;
  const FilterEntry* filter = nullptr;
  const TestEntry* test = nullptr;
};

// A scope's treatment of one variable when it is entered, as Jinja's compiler decides it.
struct ScopeLoad {
  enum class From { parameter, context, outer, nothing };
  Slot slot;
  From from;
  std::string name;  // name of the context variable
  Slot outer;
};
using ScopeLoads = std::vector<ScopeLoad>;

enum class StmtKind : uint8_t {
  text,
  output,        // values
  if_else,       // values[i] guards bodies[i]; a body more than values is the else branch
  for_loop,      // target, values[0], loop; bodies: body, else
  set,           // target, values[0]
  set_block,     // target, filter (may be null), bodies[0]
  with,          // targets, values, bodies[0]
  macro,         // name, slot, macro
  call_block,    // values[0] is the call, macro
  filter_block,  // values[0], bodies[0]
  generation,    // macro
  block,         // bodies[0], a function of its own
  scope,         // bodies[0]: autoescape false
  break_loop,
  continue_loop
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

struct MacroNode {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // defaults of the last parameters
  std::vector<Slot> slots;        // slots of the parameters
  std::optional<Slot> caller;
  std::optional<Slot> kwargs;
  std::optional<Slot> varargs;
  bool explicit_caller = false;
  bool accesses_caller = false;
  ScopeLoads loads;
  int slot_count = 0;
  Body body;
};

struct LoopNode {
  ExprPtr condition;
  bool recursive = false;
  std::optional<Slot> loop;  // present where the body mentions `loop`
  // The condition runs in a function of its own with its own copy of the target.
  ExprPtr condition_target;
  ScopeLoads condition_loads;
  int condition_slots = 0;
  ScopeLoads else_loads;
  int function_slots = 0;  // slots of a recursive loop, which is a function
};

struct Stmt {
  StmtKind kind;
  int line;
  std::string text;  // text, or a name
  ExprPtr target;
  std::vector<ExprPtr> targets;
  std::vector<ExprPtr> values;
  ExprPtr filter;
  std::vector<Body> bodies;
  std::unique_ptr<MacroNode> macro;
  std::unique_ptr<LoopNode> loop;
  ScopeLoads loads;
  Slot slot;
  int slot_count = 0;
  bool top_level = false;  // assignments are exported to blocks
};

struct Template {
  Body body;
  ScopeLoads loads;
  int slot_count = 0;
};

}  // namespace klotski::jinja
