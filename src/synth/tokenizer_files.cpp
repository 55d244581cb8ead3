#include "synth/tokenizer_files.h"

#include "base/bytes.h"
#include "base/error.h"
#include "base/folder.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"
#include "weights/model_folder.h"

namespace klotski {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxFileBytes = 256 * kMiB;

}  // namespace

TokenizerFiles copied_tokenizer(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    fail(ErrorKind::usage, "{}: expected a folder with a tokenizer, found none",
         path_in_quotes(folder));
  }
  const Tokenizer tokenizer = Tokenizer::load(folder);
  const TokenizerConfig config = TokenizerConfig::load(folder);
  TokenizerFiles result;
  result.tokens = static_cast<int64_t>(tokenizer.vocabulary_size());
  if (!config.bos_token.empty()) result.begin_token = tokenizer.id_of(config.bos_token);
  if (!config.eos_token.empty()) result.end_token = tokenizer.id_of(config.eos_token);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().native();
    if (!is_tokenizer_file(name)) continue;
    result.files.push_back({name, read_in_folder(folder, name, kMaxFileBytes)});
  }
  return result;
}

}  // namespace klotski
