#pragma once

#include <string_view>
#include <vector>

#include "text/jinja/runtime.h"

namespace klotski::jinja {

// The first index of `needle` in `text`, not before `from`; npos where there is none. Linear in the
// text whatever both are: std::string_view::find compares a hostile needle again at every byte.
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);

// Pays for searching all of `text` once with find_text.
void charge_search(Runtime& runtime, std::string_view text, std::string_view needle);

// Searches backwards, in linear time as well. Several searches in ever shorter beginnings of one
// text cost no more than one.
class BackwardSearch {
 public:
  // `needle` must live as long as this and not be empty. Pays for one pass over `text`.
  BackwardSearch(Runtime& runtime, std::string_view text, std::string_view needle);

  // The index of the last `needle` in `text`, or npos.
  size_t find(std::string_view text) const;

 private:
  std::string_view needle_;
  // By the length of a match, from the end of the needle: the length that still matches when the
  // next byte does not.
  std::vector<size_t> shorter_;
};

}  // namespace klotski::jinja
