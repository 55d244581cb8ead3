#include "text/decoder.h"

#include "text/decode_steps.h"

namespace klotski {

Decoder::Steps Decoder::fresh_steps() const {
  Steps steps;
  steps.reserve(steps_.size());
  for (const auto& step : steps_) steps.push_back(step->fresh());
  return steps;
}

std::string DecodeStream::run(DecodeStep::Tokens tokens, size_t first_step) {
  for (size_t i = first_step; i < steps_.size(); ++i) {
    DecodeStep::Tokens next;
    for (std::string& token : tokens) steps_[i]->push(std::move(token), next);
    tokens = std::move(next);
  }
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

std::string DecodeStream::push(std::string token) { return run({std::move(token)}, 0); }

std::string DecodeStream::finish() {
  std::string text;
  for (size_t i = 0; i < steps_.size(); ++i) {
    DecodeStep::Tokens rest;
    steps_[i]->finish(rest);
    text += run(std::move(rest), i + 1);
  }
  return text;
}

namespace {

class StepBuilder {
 public:
  explicit StepBuilder(std::string what) : what_(std::move(what)) {}

  void add(const JsonFields& fields) {
    const std::string type = fields.string("type");
    if (type == "Sequence") {
      const Json* list = fields.find("decoders");
      if (!list || !list->is_array()) fields.refuse("decoders", "an array of decoders");
      for (const Json& step : *list) add(JsonFields(step, what_, "decoder.decoders"));
    } else if (type == "Fuse") {
      fused_ = true;
    } else if (type == "ByteLevel") {
      gather();  // one character that spells no byte decides about the whole token
      steps.push_back(make_byte_level_step());
      fused_ = true;
    } else if (type == "Strip") {
      add_strip(fields);
    } else {
      add_token_step(type, fields);
    }
  }

  Decoder::Steps steps;

 private:
  void add_strip(const JsonFields& fields) {
    StripOptions options;
    options.content = fields.string("content");
    options.start = static_cast<size_t>(fields.integer_or("start", 0, 0, 1 << 20));
    options.stop = static_cast<size_t>(fields.integer_or("stop", 0, 0, 1 << 20));
    options.across_tokens = fused_;
    steps.push_back(make_strip_step(options));
  }

  // Steps that look at whole tokens: the parts of a fused token are put together for them first.
  void add_token_step(const std::string& type, const JsonFields& fields) {
    auto step = make_token_step(type, fields);
    if (!step.works_on_parts) gather();
    steps.push_back(std::move(step.step));
  }

  void gather() {
    if (fused_) steps.push_back(make_gather_step());
    fused_ = false;
  }

  TokenStep make_token_step(const std::string& type, const JsonFields& fields) {
    if (type == "Replace") {
      return make_replace_step(parse_pattern(fields, what_), fields.string("content"));
    }
    if (type == "ByteFallback") return {make_byte_fallback_step(), false};
    if (type == "BPEDecoder") {
      return {make_suffix_step(fields.string_or("suffix", "</w>")), false};
    }
    if (type == "WordPiece") {
      return {
          make_wordpiece_step(fields.string_or("prefix", "##"), fields.boolean_or("cleanup", true)),
          false};
    }
    if (type == "Metaspace") {
      const bool prefix = fields.boolean_or("add_prefix_space", true);
      const bool dropped =
          fields.string_or("prepend_scheme", prefix ? "always" : "never") != "never";
      return {make_metaspace_step(fields.string_or("replacement", "\u2581"), dropped), false};
    }
    fields.refuse("type", "a supported decoder");
  }

  std::string what_;
  bool fused_ = false;  // the input is parts of one token
};

Decoder single_step(std::unique_ptr<DecodeStep> step) {
  Decoder::Steps steps;
  steps.push_back(std::move(step));
  return Decoder(std::move(steps));
}

}  // namespace

Decoder parse_decoder(const JsonFields& fields, const std::string& what) {
  StepBuilder builder(what);
  builder.add(fields);
  return Decoder(std::move(builder.steps));
}

Decoder make_joining_decoder() { return single_step(make_joining_step()); }

Decoder make_tiktoken_decoder() {
  Decoder::Steps steps;
  steps.push_back(make_byte_level_step());
  steps.push_back(make_drop_byte_order_mark_step());
  return Decoder(std::move(steps));
}

}  // namespace klotski
