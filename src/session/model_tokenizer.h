#pragma once

#include <filesystem>

#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace klotski {

// The tokenizer of a model and its settings: `model` is a folder, a tokenizer's own file, or a GGUF
// file, whose metadata have both.
Tokenizer load_tokenizer(const std::filesystem::path& model);
TokenizerConfig load_tokenizer_config(const std::filesystem::path& model);

}  // namespace klotski
