#pragma once

#include <string>
#include <string_view>

#include "text/chat_template.h"

namespace klotski {

// The text of a small template, or "ERROR: " and the message.
inline std::string rendered(std::string_view source, std::string_view context = "{}",
                            TemplateLimits limits = {}) {
  try {
    return ChatTemplate::parse(source, "t", limits)
        .render(parse_ordered_json(context, "context"), std::tm{});
  } catch (const Error& error) {
    return std::string("ERROR: ") + error.what();
  }
}

inline bool fails(std::string_view source, std::string_view context = "{}",
                  TemplateLimits limits = {}) {
  return rendered(source, context, limits).substr(0, 6) == "ERROR:";
}

// The variables that the expectations taken from Jinja2 were rendered with.
inline constexpr std::string_view kContext =
    R"({"x": 3, "s": "Hello World", "u": "ÜBER straße", "l": [3, 1, 2], "d": {"a": 1, "b": [2, null], "items": "key"}, "n": null, "e": [], "m": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]})";

inline std::string shown(std::string_view source) { return rendered(source, kContext); }
inline bool refused(std::string_view source) { return fails(source, kContext); }

}  // namespace klotski
