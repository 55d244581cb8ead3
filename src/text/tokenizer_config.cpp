#include "text/tokenizer_config.h"

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "text/gzip.h"
#include "text/tokenizer_parts.h"

namespace klotski {

namespace {

constexpr uint64_t kMaxConfigBytes = 64 * kMiB;
constexpr uint64_t kMaxTemplateBytes = 4 * kMiB;

struct Document {
  std::string what;  // names it in errors
  Json json;
};

std::optional<Document> read_json(const std::filesystem::path& folder, std::string_view name) {
  const auto found = find_name(folder, name);
  if (!found) return std::nullopt;
  Document document;
  document.what = path_in_quotes(folder / *found);
  document.json = parse_json(read_in_folder_or_gzip(folder, *found, kMaxConfigBytes), document.what,
                             ErrorKind::bad_model,
                             {.wanted = {"bos_token", "eos_token", "pad_token", "unk_token",
                                         "add_bos_token", "chat_template"}});
  return document;
}

// A token is a string or an object with "content".
void read_token(const JsonFields& fields, std::string_view key, std::string& token) {
  const Json* value = fields.find(key);
  if (!value || !token.empty()) return;
  if (value->is_object()) {
    token = fields.object(key)->string("content");
  } else {
    token = fields.string(key);
  }
}

void read_tokens(const JsonFields& fields, TokenizerConfig& config) {
  read_token(fields, "bos_token", config.bos_token);
  read_token(fields, "eos_token", config.eos_token);
  read_token(fields, "pad_token", config.pad_token);
  read_token(fields, "unk_token", config.unk_token);
}

// A template is a string, or an array of named ones of which "default" and "tool_use" are kept.
void read_templates(const JsonFields& fields, const std::string& what, TokenizerConfig& config) {
  const Json* value = fields.find("chat_template");
  if (!value) return;
  if (!value->is_array()) {
    config.chat_template = fields.string("chat_template");
    return;
  }
  for (const Json& entry : *value) {
    const JsonFields named(entry, what, "chat_template");
    const std::string name = named.string("name");
    if (name == "default") config.chat_template = named.string("template");
    if (name == "tool_use") config.tool_use_template = named.string("template");
  }
}

void read_template_files(const std::filesystem::path& folder, TokenizerConfig& config) {
  if (const auto name = find_name(folder, "chat_template.jinja")) {
    config.chat_template = read_in_folder_or_gzip(folder, *name, kMaxTemplateBytes);
    return;
  }
  if (const auto document = read_json(folder, "chat_template.json")) {
    read_templates(JsonFields(document->json, document->what), document->what, config);
  }
}

}  // namespace

TokenizerConfig TokenizerConfig::load(const std::filesystem::path& folder) {
  TokenizerConfig config;
  if (const auto document = read_json(folder, "tokenizer_config.json")) {
    const JsonFields fields(document->json, document->what);
    read_tokens(fields, config);
    if (fields.has("add_bos_token"))
      config.add_bos_token = fields.boolean_or("add_bos_token", false);
    read_templates(fields, document->what, config);
  }
  if (const auto document = read_json(folder, "special_tokens_map.json")) {
    read_tokens(JsonFields(document->json, document->what), config);
  }
  read_template_files(folder, config);
  return config;
}

TokenizerConfig TokenizerConfig::from_gguf(const Json& metadata, std::string_view what) {
  const JsonFields fields(metadata, std::string(what));
  const std::vector<std::string> tokens =
      fields.strings("tokenizer.ggml.tokens").value_or(std::vector<std::string>());
  TokenizerConfig config;
  const auto set_token = [&](std::string_view key, std::string& token) {
    if (!fields.has(key)) return;
    const int64_t id = fields.integer(key, 0, std::ssize(tokens) - 1);
    token = tokens[static_cast<size_t>(id)];
  };
  set_token("tokenizer.ggml.bos_token_id", config.bos_token);
  set_token("tokenizer.ggml.eos_token_id", config.eos_token);
  set_token("tokenizer.ggml.padding_token_id", config.pad_token);
  set_token("tokenizer.ggml.unknown_token_id", config.unk_token);
  const auto set_template = [&](std::string_view key, std::optional<std::string>& text) {
    if (fields.has(key)) text = fields.string(key);
  };
  set_template("tokenizer.chat_template", config.chat_template);
  set_template("tokenizer.chat_template.tool_use", config.tool_use_template);
  config.add_bos_token = gguf_text_begins(fields);
  return config;
}

}  // namespace klotski
