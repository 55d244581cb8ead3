#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace klotski {

// Settings of a model folder's tokenizer besides the vocabulary. All files are optional, each may
// be gzip-compressed (NAME.gz); a setting that no file gives stays empty.
struct TokenizerConfig {
  std::string bos_token;
  std::string eos_token;
  std::string pad_token;
  std::string unk_token;
  std::optional<bool> add_bos_token;  // whether a plain text begins with bos_token, where stated
  std::optional<std::string> chat_template;
  std::optional<std::string> tool_use_template;  // for conversations with tools, where it differs

  // Tokens: tokenizer_config.json, else special_tokens_map.json. Templates: chat_template.jinja,
  // else chat_template.json, else tokenizer_config.json.
  static TokenizerConfig load(const std::filesystem::path& folder);
  // Reads the metadata of a GGUF file.
  static TokenizerConfig from_gguf(const Json& metadata, std::string_view what);
};

}  // namespace klotski
