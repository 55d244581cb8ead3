#include <fmt/format.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "cli/command.h"
#include "session/model_tokenizer.h"
#include "weights/model_folder.h"

namespace klotski {

namespace {

constexpr uint64_t kMaxLineBytes = 256 * kMiB;

struct TokenizeOptions {
  std::string tokenizer;
};

int tokenize_command(const TokenizeOptions& options) {
  std::error_code ignored;
  const bool is_path = std::filesystem::exists(options.tokenizer, ignored);
  const Tokenizer tokenizer = load_tokenizer(is_path ? std::filesystem::path(options.tokenizer)
                                                     : find_model(options.tokenizer));
  LineReader lines(kMaxLineBytes);
  int64_t line_number = 0;
  while (const std::optional<std::string> line = lines.next()) {
    ++line_number;
    if (line->find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string what = fmt::format("standard input, line {}", line_number);
    const Json row = parse_json(*line, what, ErrorKind::usage, {.wanted = {"text"}});
    if (!row.is_object() || !row.contains("text") || !row["text"].is_string()) {
      fail(ErrorKind::usage, "{}: expected an object with a string \"text\"", what);
    }
    const auto& text = row["text"].get_ref<const std::string&>();
    const std::vector<TokenId> ids = tokenizer.encode(text, {});
    const Json result = {{"ids", ids},
                         {"ids_with_special", tokenizer.encode(text, {.add_special = true})},
                         {"decoded", tokenizer.decode(ids)}};
    write_out(result.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  return 0;
}

}  // namespace

void add_tokenize_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand("tokenize", "Turn text into token ids and back");
  command
      ->add_option("TOKENIZER_DIR", options->tokenizer,
                   "A folder with tokenizer.json, tokenizer.model or a tiktoken file, such a file, "
                   "a GGUF file or a model")
      ->required();
  command->footer(
      "Reads JSON lines {\"text\": ...} from standard input and writes JSON lines with ids, "
      "ids_with_special\nand decoded (the ids turned back, special tokens kept).");
  command->callback(
      [options, &action] { action = [options] { return tokenize_command(*options); }; });
}

}  // namespace klotski
