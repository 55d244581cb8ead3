#pragma once

#include <string>

#include "text/jinja/interpreter.h"

namespace klotski::jinja {

// A macro, or the body of a call block, as a value that can be called.
class MacroObject : public CallableObject {
 public:
  // All three outlive the rendering's values.
  MacroObject(Interpreter* interpreter, const MacroNode* macro, Frame* outer)
      : interpreter_(interpreter), macro_(macro), outer_(outer) {}

  Value call(Runtime& runtime, Arguments arguments) const override;
  std::string describe() const override;
  Value attribute(Runtime& runtime, std::string_view name) const override;

 private:
  Interpreter* interpreter_;
  const MacroNode* macro_;
  Frame* outer_;
};

}  // namespace klotski::jinja
