#include "session/model_tokenizer.h"

#include "base/error.h"
#include "base/file.h"
#include "weights/gguf.h"

namespace klotski {

namespace {

Json metadata_of(const std::filesystem::path& model) {
  return read_gguf(File(model), path_in_quotes(model)).metadata;
}

}  // namespace

Tokenizer load_tokenizer(const std::filesystem::path& model) {
  return is_gguf_file(model) ? Tokenizer::from_gguf(metadata_of(model), path_in_quotes(model))
                             : Tokenizer::load(model);
}

TokenizerConfig load_tokenizer_config(const std::filesystem::path& model) {
  return is_gguf_file(model) ? TokenizerConfig::from_gguf(metadata_of(model), path_in_quotes(model))
                             : TokenizerConfig::load(model);
}

}  // namespace klotski
