#pragma once

#include <memory>
#include <string>

#include "base/json.h"

namespace klotski {

// One step that rewrites text before it is cut into pieces. Takes and gives valid UTF-8.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(std::string& text) const = 0;
};

// From the "normalizer" object of a tokenizer.json. Throws on an unknown type, naming it.
std::unique_ptr<Normalizer> parse_normalizer(const JsonFields& fields, const std::string& what);

}  // namespace klotski
