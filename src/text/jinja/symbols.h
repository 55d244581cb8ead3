#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"

namespace klotski::jinja {

// A slot of a function's frame. Functions are numbered; `function` is not a distance.
struct Reference {
  int function = -1;
  int index = -1;
  bool operator==(const Reference&) const = default;
};

// A function of the template: the template itself, a macro, a call block, a recursive loop, the
// condition of a loop, a block. Scopes of one level that follow each other share their slots.
struct FunctionSlots {
  int parent = -1;
  int depth = 0;
  std::map<std::pair<int, std::string>, int> slots;
};

// The variables of one scope.
class Symbols {
 public:
  Symbols(const Symbols* parent, int function, std::vector<FunctionSlots>* functions);

  int function() const { return function_; }
  const Reference* find(const std::string& name) const;

  // A name is read, is assigned, is set from outside before the scope is entered.
  void load(const std::string& name);
  void store(const std::string& name);
  void declare_parameter(const std::string& name);

  // Around the branches of an if: a variable that only some branches assign has, in the others, the
  // value from outside. Jinja begins each branch with a copy of the scope and merges the copies;
  // that gives the same variables, since a name has one slot in a scope whatever branch mentions it
  // first.
  size_t begin_branches() const { return stored_.size(); }
  void end_branches(size_t begun);

  // Slots as seen from inside this scope's function.
  Slot slot(const Reference& reference) const;
  Slot slot(const std::string& name) const { return slot(*find(name)); }
  ScopeLoads loads() const;

 private:
  struct Load {
    Reference target;
    ScopeLoad::From from;
    std::string name;
    Reference outer;
  };

  const Reference* find_outer(const std::string& name) const;
  void add_store(const std::string& name);
  void define(const std::string& name, Load load);

  const Symbols* parent_;
  int level_;
  int function_;
  std::vector<FunctionSlots>* functions_;
  std::vector<Load> loads_;  // one for each name of the scope
  std::unordered_map<std::string, size_t> load_of_;
  std::vector<std::string> stored_;  // names in the order of their first assignment
  std::unordered_set<std::string> stores_;
};

}  // namespace klotski::jinja
