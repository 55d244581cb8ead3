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

}  // namespace klotski
