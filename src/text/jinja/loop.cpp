#include "text/jinja/loop.h"

namespace klotski::jinja {

LoopObject::LoopObject(Runtime& runtime, const Value& iterable, int64_t depth0)
    : runtime_(runtime),
      iterable_(iterable),
      iterator_(iterate(runtime, iterable)),
      depth0_(depth0) {}

bool LoopObject::next(Value* out) {
  Value item;
  if (!after_.is(Kind::missing)) {
    item = std::exchange(after_, Value());
  } else if (iterator_ == nullptr || !iterator_->next(&item)) {
    return false;
  }
  ++index0_;
  before_ = std::exchange(current_, item);
  *out = std::move(item);
  return true;
}

void LoopObject::close() {
  iterator_.reset();
  iterable_ = before_ = current_ = after_ = Value();
  last_changed_.reset();
}

bool LoopObject::peek() {
  if (!after_.is(Kind::missing)) return true;
  // An iterator may have written to its output and yet have come to its end.
  Value item;
  if (iterator_ == nullptr || !iterator_->next(&item)) return false;
  after_ = std::move(item);
  return true;
}

int64_t LoopObject::length() {
  if (length_) return *length_;
  if (const int64_t known = length_of(iterable_); known >= 0) {
    length_ = known;
    return known;
  }
  // The rest has to be drawn to be counted.
  std::vector<Value> rest;
  Value item;
  while (iterator_ != nullptr && iterator_->next(&item)) {
    runtime_.budget().allocate(sizeof(Value));
    rest.push_back(item);
  }
  length_ = static_cast<int64_t>(rest.size()) + index0_ + (after_.is(Kind::missing) ? 1 : 2);
  iterator_ = iterate(runtime_, runtime_.list(std::move(rest)));
  return *length_;
}

Value LoopObject::attribute(Runtime& runtime, std::string_view name) {
  if (name == "index") return Value::integer(index0_ + 1);
  if (name == "index0") return Value::integer(index0_);
  if (name == "revindex") return Value::integer(length() - index0_);
  if (name == "revindex0") return Value::integer(length() - index0_ - 1);
  if (name == "first") return Value::boolean(index0_ == 0);
  if (name == "last") return Value::boolean(!peek());
  if (name == "length") return Value::integer(length());
  if (name == "depth") return Value::integer(depth0_ + 1);
  if (name == "depth0") return Value::integer(depth0_);
  if (name == "previtem") {
    return index0_ == 0 ? Value::undefined("there is no previous item") : before_;
  }
  if (name == "nextitem") return peek() ? after_ : Value::undefined("there is no next item");
  static_cast<void>(runtime);
  return Value();
}

Value LoopObject::cycle(const Arguments& arguments) const {
  if (arguments.positional.empty()) raise("no items for cycling given");
  const auto count = static_cast<int64_t>(arguments.positional.size());
  return arguments.positional[static_cast<size_t>(index0_ % count)];
}

Value LoopObject::changed(Runtime& runtime, const Arguments& arguments) {
  const Value now = runtime.tuple(arguments.positional);
  runtime.budget().step(value_weight(now));
  if (last_changed_ && equal(*last_changed_, now)) return Value::boolean(false);
  last_changed_ = now;
  return Value::boolean(true);
}

std::string LoopObject::describe() {
  return fmt::format("<LoopContext {}/{}>", index0_ + 1, length());
}

}  // namespace klotski::jinja
