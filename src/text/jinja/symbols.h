#pragma once

#include <map>
#include <set>
#include <string>
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
// condition of a loop, a block. Scopes on the same level that follow each other share their slots.
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

  // Merges what the branches of an if, each begun as a copy of this, have found out.
  void branch_update(const std::vector<Symbols>& branches);

  // Both as seen from inside this scope's function.
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
  void define(const std::string& name, Load load);
  void set_load(const Load& load);

  const Symbols* parent_;
  int level_;
  int function_;
  std::vector<FunctionSlots>* functions_;
  std::map<std::string, Reference> references_;
  std::vector<Load> loads_;
  std::set<std::string> stores_;
};

}  // namespace klotski::jinja
