#include "engine/reference_file.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/json.h"

namespace klotski {

namespace {

std::vector<TokenId> tokens_of(const JsonFields& prompt, std::string_view key,
                               const ModelDescription& model) {
  const auto ids = prompt.integers(key, 0, model.vocabulary - 1);
  return ids ? std::vector<TokenId>(ids->begin(), ids->end()) : std::vector<TokenId>();
}

ReferencePrompt parse_prompt(const JsonFields& fields, const ModelDescription& model) {
  ReferencePrompt prompt;
  prompt.input = tokens_of(fields, "input_ids", model);
  prompt.argmax_all = tokens_of(fields, "argmax_all", model);
  prompt.greedy = tokens_of(fields, "greedy", model);
  constexpr double kAny = std::numeric_limits<float>::max();
  if (const auto logits = fields.numbers("last_logits", -kAny, kAny)) {
    prompt.last_logits.assign(logits->begin(), logits->end());
  }
  prompt.margins = fields.numbers("margins", 0.0, kAny).value_or(std::vector<double>());

  if (prompt.input.empty()) fields.refuse("input_ids", "at least one token id");
  if (model.encoder) {
    prompt.encoded = static_cast<int64_t>(prompt.input.size());
    prompt.input.push_back(model.encoder->start_token);
  }
  const auto size_must_be = [&](std::string_view key, size_t found, size_t expected) {
    if (found != 0 && found != expected) fields.refuse(key, fmt::format("{} entries", expected));
  };
  size_must_be("last_logits", prompt.last_logits.size(), static_cast<size_t>(model.vocabulary));
  size_must_be("argmax_all", prompt.argmax_all.size(), prompt.input.size());
  size_must_be("margins", prompt.margins.size(), prompt.greedy.size());
  if (prompt.last_logits.empty() && prompt.argmax_all.empty() && prompt.greedy.empty()) {
    fields.refuse("greedy", "last_logits, argmax_all or greedy to compare with");
  }
  const auto positions = static_cast<int64_t>(prompt.input.size() + prompt.greedy.size());
  if (std::max(positions - prompt.encoded, prompt.encoded) > model.max_positions) {
    fields.refuse("greedy",
                  fmt::format("prompt and continuation within {} positions", model.max_positions));
  }
  return prompt;
}

}  // namespace

std::string reference_version(std::string_view json_text, std::string_view what) {
  const Json json = parse_json(json_text, what);
  return JsonFields(json, std::string(what)).string_or("transformers", "");
}

std::vector<ReferencePrompt> parse_reference(std::string_view json_text, std::string_view what,
                                             const ModelDescription& model) {
  const Json json = parse_json(json_text, what);
  const JsonFields fields(json, std::string(what));
  const Json* list = fields.find("prompts");
  if (!list || !list->is_array() || list->empty()) {
    fields.refuse("prompts", "an array with at least one prompt");
  }
  std::vector<ReferencePrompt> prompts;
  for (size_t i = 0; i < list->size(); ++i) {
    prompts.push_back(parse_prompt(
        JsonFields((*list)[i], std::string(what), fmt::format("prompts[{}]", i)), model));
  }
  return prompts;
}

}  // namespace klotski
