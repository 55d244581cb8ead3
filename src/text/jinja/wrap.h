#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/runtime.h"

namespace klotski::jinja {

struct WrapOptions {
  int64_t width = 79;
  bool break_long_words = true;
  bool break_on_hyphens = true;
};

// The lines that Python's textwrap.wrap makes of one line of text, tabs and blanks kept.
std::vector<std::string> wrap_text(Runtime& runtime, std::string_view text,
                                   const WrapOptions& options);

}  // namespace klotski::jinja
