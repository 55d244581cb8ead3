#include "timeline/escaped.h"

#include "base/error.h"

namespace klotski {

std::string escaped(std::string_view text, size_t max_bytes) {
  std::string safe;
  for (const char c : one_line(text, max_bytes)) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

}  // namespace klotski
