#include "text/post_processor.h"

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/error.h"
#include "text/vocabulary.h"

namespace klotski {

namespace {

// Items name tokens, each of which stands for a list of ids: without a bound the product of both.
constexpr size_t kMaxAround = 1024;

void check_size(const PostProcessor& result, const std::string& what) {
  if (result.before.size() + result.after.size() > kMaxAround) {
    fail(ErrorKind::bad_model, "{}: post_processor: expected at most {} added tokens, found more",
         what, kMaxAround);
  }
}

void append_special(const JsonFields& fields, const std::string& name, std::vector<TokenId>& out) {
  const auto tokens = fields.object("special_tokens");
  const auto token = tokens ? tokens->object(name) : std::nullopt;
  const auto ids = token ? token->integers("ids", 0, kMaxTokenIds - 1) : std::nullopt;
  if (!ids) fields.refuse("special_tokens", fmt::format("the ids of {}", in_quotes(name)));
  for (const int64_t id : *ids) out.push_back(static_cast<TokenId>(id));
}

PostProcessor parse_template(const JsonFields& fields, const std::string& what) {
  const Json* list = fields.find("single");
  if (!list || !list->is_array()) fields.refuse("single", "an array of template items");
  PostProcessor result;
  int sequences = 0;
  for (const Json& item : *list) {
    const JsonFields entry(item, what, "post_processor.single");
    if (const auto special = entry.object("SpecialToken")) {
      append_special(fields, special->string("id"), sequences > 0 ? result.after : result.before);
      check_size(result, what);
    } else if (entry.object("Sequence")) {
      ++sequences;
    } else {
      entry.refuse("SpecialToken", "a SpecialToken or a Sequence");
    }
  }
  if (sequences != 1) fields.refuse("single", "the sequence exactly once");
  return result;
}

// ["[CLS]", 101]
TokenId pair_id(const JsonFields& fields, std::string_view key) {
  const Json* pair = fields.find(key);
  const bool shaped =
      pair && pair->is_array() && pair->size() == 2 && (*pair)[1].is_number_integer();
  const int64_t id = shaped ? (*pair)[1].get<int64_t>() : -1;
  if (id < 0 || id >= kMaxTokenIds) fields.refuse(key, "a token and its id");
  return static_cast<TokenId>(id);
}

PostProcessor parse_sequence(const JsonFields& fields, const std::string& what) {
  const Json* list = fields.find("processors");
  if (!list || !list->is_array()) fields.refuse("processors", "an array of post-processors");
  PostProcessor result;
  for (const Json& step : *list) {
    const PostProcessor outer =
        parse_post_processor(JsonFields(step, what, "post_processor.processors"), what);
    result.before.insert(result.before.begin(), outer.before.begin(), outer.before.end());
    result.after.insert(result.after.end(), outer.after.begin(), outer.after.end());
    check_size(result, what);
  }
  return result;
}

}  // namespace

PostProcessor parse_post_processor(const JsonFields& fields, const std::string& what) {
  const std::string type = fields.string("type");
  if (type == "ByteLevel") return {};  // moves offsets only
  if (type == "TemplateProcessing") return parse_template(fields, what);
  if (type == "Sequence") return parse_sequence(fields, what);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    return {{pair_id(fields, "cls")}, {pair_id(fields, "sep")}};
  }
  fields.refuse("type", "a supported post-processor");
}

}  // namespace klotski
