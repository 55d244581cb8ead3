#include "text/jinja/symbols.h"

#include <algorithm>

namespace klotski::jinja {

Symbols::Symbols(const Symbols* parent, int function, std::vector<FunctionSlots>* functions)
    : parent_(parent),
      level_(parent == nullptr ? 0 : parent->level_ + 1),
      function_(function),
      functions_(functions) {}

const Reference* Symbols::find(const std::string& name) const {
  for (const Symbols* scope = this; scope != nullptr; scope = scope->parent_) {
    const auto found = scope->references_.find(name);
    if (found != scope->references_.end()) return &found->second;
  }
  return nullptr;
}

const Reference* Symbols::find_outer(const std::string& name) const {
  return parent_ == nullptr ? nullptr : parent_->find(name);
}

void Symbols::define(const std::string& name, Load load) {
  auto& slots = (*functions_)[static_cast<size_t>(function_)].slots;
  const int next = static_cast<int>(slots.size());
  const int index = slots.emplace(std::pair(level_, name), next).first->second;
  load.target = {function_, index};
  references_[name] = load.target;
  set_load(load);
}

void Symbols::set_load(const Load& load) {
  const auto same = std::find_if(loads_.begin(), loads_.end(),
                                 [&](const Load& other) { return other.target == load.target; });
  if (same == loads_.end()) {
    loads_.push_back(load);
  } else {
    *same = load;
  }
}

void Symbols::load(const std::string& name) {
  if (find(name) == nullptr) define(name, {{}, ScopeLoad::From::context, name, {}});
}

void Symbols::store(const std::string& name) {
  stores_.insert(name);
  if (references_.count(name) != 0) return;
  if (const Reference* outer = find_outer(name)) {
    define(name, {{}, ScopeLoad::From::outer, "", *outer});
  } else {
    define(name, {{}, ScopeLoad::From::nothing, "", {}});
  }
}

void Symbols::declare_parameter(const std::string& name) {
  stores_.insert(name);
  define(name, {{}, ScopeLoad::From::parameter, "", {}});
}

void Symbols::branch_update(const std::vector<Symbols>& branches) {
  std::set<std::string> stored;
  for (const Symbols& branch : branches) {
    for (const std::string& name : branch.stores_) {
      if (stores_.count(name) == 0) stored.insert(name);
    }
  }
  for (const Symbols& branch : branches) {
    for (const auto& [name, reference] : branch.references_) references_[name] = reference;
    for (const Load& load : branch.loads_) set_load(load);
    stores_.insert(branch.stores_.begin(), branch.stores_.end());
  }
  // What only some branches assign has, in the others, the value from outside.
  for (const std::string& name : stored) {
    const Reference target = *find(name);
    if (const Reference* outer = find_outer(name)) {
      set_load({target, ScopeLoad::From::outer, "", *outer});
    } else {
      set_load({target, ScopeLoad::From::context, name, {}});
    }
  }
}

Slot Symbols::slot(const Reference& reference) const {
  const auto& functions = *functions_;
  const int here = functions[static_cast<size_t>(function_)].depth;
  const int there = functions[static_cast<size_t>(reference.function)].depth;
  return {here - there, reference.index};
}

ScopeLoads Symbols::loads() const {
  ScopeLoads result;
  for (const Load& load : loads_) {
    const Slot outer = load.from == ScopeLoad::From::outer ? slot(load.outer) : Slot{};
    result.push_back({slot(load.target), load.from, load.name, outer});
  }
  return result;
}

}  // namespace klotski::jinja
