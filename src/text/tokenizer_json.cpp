#include "text/tokenizer_parts.h"

namespace klotski {

std::shared_ptr<const TokenizerParts> parse_tokenizer_json(std::string_view json,
                                                           const std::string& what) {
  const Json document = parse_json(json, what, ErrorKind::bad_model,
                                   {.wanted = {"model", "normalizer", "pre_tokenizer",
                                               "post_processor", "decoder", "added_tokens"}});
  const JsonFields fields(document, what);
  auto parts = std::make_shared<TokenizerParts>();
  const auto model = fields.object("model");
  if (!model) fields.refuse("model", "an object");
  parts->model = parse_model(*model, what, parts->vocabulary);
  if (const auto normalizer = fields.object("normalizer")) {
    parts->normalizer = parse_normalizer(*normalizer, what);
  }
  if (const auto pretokenizer = fields.object("pre_tokenizer")) {
    parts->pretokenizer = parse_pretokenizer(*pretokenizer, what);
  }
  if (const auto post_processor = fields.object("post_processor")) {
    parts->post_processor = parse_post_processor(*post_processor, what);
  }
  if (const auto decoder = fields.object("decoder")) {
    parts->decoder = parse_decoder(*decoder, what);
  }
  if (const Json* added = fields.find("added_tokens")) {
    parse_added_tokens(*added, what, parts->vocabulary, parts->added);
  }
  parts->added.build(parts->normalizer.get(), what);
  return parts;
}

}  // namespace klotski
