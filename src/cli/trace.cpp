#include <fmt/format.h>

#include "base/bytes.h"
#include "base/error.h"
#include "cli/command.h"
#include "cli/session_output.h"
#include "engine/text_pass.h"
#include "experts/routing_trace.h"
#include "session/model_tokenizer.h"

namespace klotski {

namespace {

constexpr uint64_t kMaxTextBytes = 256 * kMiB;

struct TraceOptions {
  std::string model;
  SessionFlags flags;
  std::string text;
  std::string output;
  int64_t tokens = 512;
};

void append(RoutingTraceWriter& writer, const RoutedPiece& piece, const GroupChoices& choices) {
  for (size_t i = 0; i < piece.tokens.size(); ++i) {
    RoutingRecord record{
        .sequence = static_cast<uint32_t>(piece.text),
        .position = static_cast<uint32_t>(piece.first_position) + static_cast<uint32_t>(i),
        .token = piece.tokens[i],
        .choices = {}};
    for (size_t layer = 0; layer < choices.known_layers(); ++layer) {
      const std::span<const ExpertId> chosen =
          choices.token(layer, piece.first_row + static_cast<int64_t>(i));
      record.choices.insert(record.choices.end(), chosen.begin(), chosen.end());
    }
    writer.append(record);
  }
}

int trace_command(const TraceOptions& options) {
  refuse_warm_up(options.flags, "the text is traced as it comes");
  const auto model = open_model(options.model);
  const RoutingTraceShape shape = routing_shape(model->description);
  if (shape.layers.empty()) {
    fail(ErrorKind::usage, "{} has no routed layers: there is nothing to trace",
         in_quotes(options.model));
  }
  const Tokenizer tokenizer = load_tokenizer(model->folder);
  const std::string text = text_or_sample(options.text, "-f", kMaxTextBytes);
  const int64_t most = std::min(options.tokens, model->description.max_positions);
  const std::vector<std::vector<TokenId>> sequences =
      cut_into_sequences(tokenizer.encode(text, {}), most);
  Session session(model, options.flags.session_options(), events_on_stderr(options.flags));
  session.plan({.sequences = static_cast<int64_t>(sequences.size()),
                .tokens_per_sequence = most,
                .prompt_tokens = most});
  session.load();
  uint64_t done = 0;
  uint64_t total = 0;
  for (const auto& sequence : sequences) total += sequence.size();
  StatusLine status("tracing", "tokens");
  write_argument_file(options.output, "-o", [&](std::ostream& out) {
    RoutingTraceWriter writer(out, shape);
    pass_texts(session.pipeline(), sequences,
               [&](std::span<const RoutedPiece> pieces, const GroupChoices& choices) {
                 for (const RoutedPiece& piece : pieces) append(writer, piece, choices);
                 done += static_cast<uint64_t>(choices.tokens());
                 status.update(done, total);
               });
  });
  write_session_files(options.flags, session);
  write_out(fmt::format("{}: {} tokens of {} sequences, {} routed layers\n", options.output, total,
                        sequences.size(), shape.layers.size()));
  return 0;
}

}  // namespace

void add_trace_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<TraceOptions>();
  CLI::App* command =
      app.add_subcommand("trace", "Write which experts each token of a text is routed to");
  command->add_option("MODEL", options->model, "Folder, GGUF file, bundled name or repository id")
      ->required();
  add_output_file(*command, "-o,--output", "FILE",
                  "File for the trace (its format: docs/routing-trace.md)", options->output)
      ->required();
  command
      ->add_option("-f,--file", options->text,
                   "File of text to trace; - is standard input (default: a sample)")
      ->type_name("FILE");
  add_integer(*command, "--sequence-tokens", {1, 1 << 20},
              "Cut the text into sequences of N tokens (default 512)",
              [options](int64_t value) { options->tokens = value; });
  add_session_flags(*command, options->flags);
  command->callback([options, &action] { action = [options] { return trace_command(*options); }; });
}

}  // namespace klotski
