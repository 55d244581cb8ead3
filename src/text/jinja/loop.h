#pragma once

#include <memory>
#include <optional>
#include <string>

#include "text/jinja/runtime.h"

namespace klotski::jinja {

class Interpreter;
struct Stmt;
struct Frame;

// The special variable `loop`. It looks ahead only where the template asks for it, so a lazy
// iterable is drawn from no earlier than in Python.
class LoopObject {
 public:
  LoopObject(Runtime& runtime, const Value& iterable, int64_t depth0);

  // Moves to the next element.
  bool next(Value* out);
  // Lets go of the elements; counters stay readable.
  void close();
  // loop.NAME for the data attributes; missing where there is none of that name.
  Value attribute(Runtime& runtime, std::string_view name);
  Value cycle(const Arguments& arguments) const;
  Value changed(Runtime& runtime, const Arguments& arguments);
  std::string describe();

  // Set for a recursive loop: the statement that loop(...) runs.
  Interpreter* interpreter = nullptr;
  const Stmt* statement = nullptr;
  Frame* outer = nullptr;

  int64_t depth0() const { return depth0_; }

 private:
  bool peek();
  int64_t length();

  Runtime& runtime_;
  Value iterable_;
  std::shared_ptr<IteratorObject> iterator_;
  std::optional<int64_t> length_;
  int64_t index0_ = -1;
  int64_t depth0_;
  Value before_;
  Value current_;
  Value after_;
  std::optional<Value> last_changed_;
};

}  // namespace klotski::jinja
