#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace klotski {

// A field of a form, as multipart/form-data has it.
struct FormPart {
  std::string name;
  std::string filename;      // empty: no file
  std::string_view content;  // of the body that was parsed
};

// The parts of a body with this Content-Type. Throws ApiError for a type without a boundary, and
// for a body that is no whole form or has more than a few parts.
std::vector<FormPart> parse_form(std::string_view content_type, std::string_view body);

}  // namespace klotski
