#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/regex.h"

namespace klotski {

// Normalised text and the stretches of it that the model sees one at a time.
struct Pieces {
  std::string text;
  std::vector<Span> spans;      // in order, without overlap, none empty
  bool at_input_start = false;  // text[0] is the first character of the whole input
};

// One step that cuts pieces into smaller ones, and may rewrite their text.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
};

struct PreTokenizerChain {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  // The last step spells the bytes of every piece (byte_level.h). Left to the caller, who then does
  // it only for pieces it has not seen before.
  bool spell_bytes = false;
};

// Reads the "pre_tokenizer" object of a tokenizer.json. Throws on an unknown type, naming it.
PreTokenizerChain parse_pretokenizer(const JsonFields& fields, const std::string& what);

// A Split by a regular expression that keeps every match as a piece of its own.
std::unique_ptr<PreTokenizer> make_regex_split(Regex regex);

}  // namespace klotski
