#include <fmt/format.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/session_output.h"
#include "engine/text_pass.h"
#include "session/model_tokenizer.h"

namespace klotski {

namespace {

constexpr uint64_t kMaxTextBytes = 256 * kMiB;

struct PerplexityOptions {
  std::string model;
  SessionFlags flags;
  std::string text;
  int64_t tokens = 512;
  bool json = false;
};

int perplexity_command(const PerplexityOptions& options) {
  refuse_warm_up(options.flags, "the text is foretold as it comes");
  const auto model = open_model(options.model);
  const Tokenizer tokenizer = load_tokenizer(model->folder);
  const std::string text = text_or_sample(options.text, "-f", kMaxTextBytes);
  const int64_t most = std::min(options.tokens, model->description.max_positions);
  const std::vector<std::vector<TokenId>> sequences =
      cut_into_sequences(tokenizer.encode(text, {}), most);
  if (sequences.empty() || sequences.front().size() < 2) {
    fail(ErrorKind::usage, "the text has {} tokens, expected at least 2; give a longer -f",
         sequences.empty() ? 0 : sequences.front().size());
  }
  Session session(model, options.flags.session_options(), events_on_stderr(options.flags));
  session.plan(score_workload(sequences));
  session.load();
  StatusLine status("scoring", "tokens");
  const TextScore score =
      score_texts(session.pipeline(), sequences,
                  [&](uint64_t done, uint64_t total) { status.update(done, total); });
  write_session_files(options.flags, session);
  const double nats = score.negative_log_likelihood / static_cast<double>(score.tokens);
  if (options.json) {
    write_out(Json{{"perplexity", score.perplexity()},
                   {"nats_per_token", nats},
                   {"tokens", score.tokens},
                   {"sequences", sequences.size()},
                   {"sequence_tokens", most}}
                  .dump(2) +
              "\n");
  } else {
    write_out(fmt::format("perplexity {:.4f} ({:.5f} nats a token, {} tokens of {} sequences)\n",
                          score.perplexity(), nats, score.tokens, sequences.size()));
  }
  return 0;
}

}  // namespace

void add_perplexity_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<PerplexityOptions>();
  CLI::App* command =
      app.add_subcommand("perplexity", "Measure how well a model foretells the tokens of a text");
  command->add_option("MODEL", options->model, "Folder, GGUF file, bundled name or repository id")
      ->required();
  command
      ->add_option("-f,--file", options->text,
                   "File of text to foretell; - is standard input (default: a sample)")
      ->type_name("FILE");
  add_integer(*command, "--sequence-tokens", {2, 1 << 20},
              "Cut the text into sequences of N tokens, each foretold by itself (default 512)",
              [options](int64_t value) { options->tokens = value; });
  command->add_flag("--json", options->json, "Print the result as JSON");
  add_session_flags(*command, options->flags);
  command->callback(
      [options, &action] { action = [options] { return perplexity_command(*options); }; });
}

}  // namespace klotski
