#include "text/jinja/symbols.h"

namespace klotski::jinja {

Symbols::Symbols(const Symbols* parent, int function, std::vector<FunctionSlots>* functions)
    : parent_(parent),
      level_(parent == nullptr ? 0 : parent->level_ + 1),
      function_(function),
      functions_(functions) {}

const Reference* Symbols::find(const std::string& name) const {
  for (const Symbols* scope = this; scope != nullptr; scope = scope->parent_) {
    const auto found = scope->load_of_.find(name);
    if (found != scope->load_of_.end()) return &scope->loads_[found->second].target;
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
  const auto [entry, added] = load_of_.emplace(name, loads_.size());
  if (added) {
    loads_.push_back(std::move(load));
  } else {
    loads_[entry->second] = std::move(load);
  }
}

void Symbols::add_store(const std::string& name) {
  if (stores_.insert(name).second) stored_.push_back(name);
}

void Symbols::load(const std::string& name) {
  if (find(name) == nullptr) define(name, {{}, ScopeLoad::From::context, name, {}});
}

void Symbols::store(const std::string& name) {
  add_store(name);
  if (load_of_.count(name) != 0) return;
  if (const Reference* outer = find_outer(name)) {
    define(name, {{}, ScopeLoad::From::outer, "", *outer});
  } else {
    define(name, {{}, ScopeLoad::From::nothing, "", {}});
  }
}

void Symbols::declare_parameter(const std::string& name) {
  add_store(name);
  define(name, {{}, ScopeLoad::From::parameter, "", {}});
}

void Symbols::end_branches(size_t begun) {
  for (size_t i = begun; i < stored_.size(); ++i) {
    const std::string& name = stored_[i];
    Load& load = loads_[load_of_.at(name)];
    const Reference* outer = find_outer(name);
    load.from = outer != nullptr ? ScopeLoad::From::outer : ScopeLoad::From::context;
    load.name = outer != nullptr ? std::string() : name;
    load.outer = outer != nullptr ? *outer : Reference();
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
