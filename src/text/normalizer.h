#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

#include "base/json.h"

namespace klotski {

// How long a text may become on its way to the model. Rules come from files: a few of them that
// each double a letter would fill any memory, and the models count bytes in 31 bits.
constexpr size_t longest_rewritten(size_t bytes) {
  constexpr size_t kFactor = 64, kSlack = size_t{1} << 20, kMost = (size_t{1} << 31) - 1;
  return std::min(bytes * kFactor + kSlack, kMost);
}

// Rewrites text before it is cut into pieces. Takes and gives valid UTF-8.
class Normalizer {
 public:
  virtual ~Normalizer() = default;

  void apply(std::string& text) const { rewrite(text, longest_rewritten(text.size())); }
  // Throws, naming the step, where the text becomes longer than max_bytes.
  virtual void rewrite(std::string& text, size_t max_bytes) const = 0;
};

// Reads the "normalizer" object of a tokenizer.json. Throws on an unknown type, naming it.
std::unique_ptr<Normalizer> parse_normalizer(const JsonFields& fields, const std::string& what);

}  // namespace klotski
