#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "cli/model_flags.h"
#include "cli/session_flags.h"
#include "engine/sampling.h"
#include "session/session.h"
#include "text/chat_template.h"
#include "text/tokenizer_config.h"

namespace klotski {

// Longest prompt of `klotski run`, and longest line of a chat.
inline constexpr uint64_t kMaxPromptBytes = 256ULL << 20;

// Options of `klotski run`.
struct RunOptions {
  ModelFlags model;
  SessionFlags flags;
  std::optional<std::string> prompt;
  std::string file;
  std::string system;
  std::string target_language;  // empty: none
  bool chat = false;
  bool parse_special = false;
  bool ignore_end = false;
  bool json = false;
  int64_t max_tokens = 256;
  // Changes to the sampling that the model suggests, in the order of the command line.
  std::vector<std::function<void(SamplingOptions&)>> sampling;
  std::vector<std::string> stop_strings;
  std::vector<TokenId> stop_ids;
};

// A session with all that turns prompts into requests and tokens into text.
struct TextRun {
  const RunOptions& options;
  Session& session;
  const Tokenizer& tokenizer;
  const TokenizerConfig& config;
  SamplingOptions sampling;
  std::vector<TokenId> stop_tokens;
};

// Text, length and speed of one answer.
struct Outcome {
  std::string text;
  int64_t prompt_tokens = 0;
  int64_t tokens = 0;
  std::string finish;  // "length", "stop", or "interrupted" where the user stopped it
  double first_token_seconds = 0.0;
  double seconds = 0.0;
  CacheCounters experts{};  // requests for experts while the answer was computed
  DraftCounts drafts{};

  double tokens_per_second() const;
};

// Length and speed of an answer in one line.
std::string outcome_line(const Outcome& outcome);

// Follows an answer while it is generated.
struct AnswerListener {
  std::function<void(std::string_view)> text;  // more text, as it becomes certain
  std::function<bool()> stop_asked{};          // asked after every pass; empty: never
};

// Plans and loads the session for the work, and warms it up where the flags ask for it.
void prepare(const TextRun& run, const Workload& workload);

Request request_for(const TextRun& run, std::vector<TokenId> prompt);

// Runs one request to its end, or until the listener asks to stop.
Outcome generate(const TextRun& run, Request request, const AnswerListener& listener);

// The model's chat template; refuses (usage) a model without one.
ChatTemplate template_of(const TextRun& run);

// A conversation on standard input and output, line by line.
int run_interactive(const TextRun& run);

}  // namespace klotski
