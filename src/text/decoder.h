#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"

namespace klotski {

// One step from token texts to text, as a stream: the output of push() never changes later. A step
// that joins tokens (Fuse, ByteLevel) hands on parts of the one token it makes.
class DecodeStep {
 public:
  using Tokens = std::vector<std::string>;
  virtual ~DecodeStep() = default;
  virtual std::unique_ptr<DecodeStep> fresh() const = 0;  // this step at the start of a stream
  virtual void push(std::string token, Tokens& out) = 0;
  virtual void finish(Tokens& out) { (void)out; }
};

// The steps of a tokenizer; immutable, shared by all streams.
class Decoder {
 public:
  using Steps = std::vector<std::unique_ptr<DecodeStep>>;
  explicit Decoder(Steps steps) : steps_(std::move(steps)) {}
  Steps fresh_steps() const;

 private:
  Steps steps_;
};

// A stream of token texts through fresh steps of a decoder.
class DecodeStream {
 public:
  explicit DecodeStream(const Decoder& decoder) : steps_(decoder.fresh_steps()) {}
  std::string push(std::string token);
  std::string finish();

 private:
  std::string run(DecodeStep::Tokens tokens, size_t first_step);
  Decoder::Steps steps_;
};

// Reads the "decoder" object of a tokenizer.json. Throws on an unknown type, naming it.
Decoder parse_decoder(const JsonFields& fields, const std::string& what);

// Hugging Face's rule for a tokenizer without a decoder: tokens joined by spaces.
Decoder make_joining_decoder();
// Bytes spelled as in byte_level.h, turned to text as the decoders of the web do: a byte-order mark
// at the start is not part of the text.
Decoder make_tiktoken_decoder();

}  // namespace klotski
