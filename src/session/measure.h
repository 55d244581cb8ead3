#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "session/session.h"
#include "text/tokenizer.h"

namespace klotski {

// Work that every compared setting does: prompts of real text, and how much to generate.
struct MeasuredWork {
  std::vector<std::vector<TokenId>> prompts;
  int64_t generate = 0;  // tokens a prompt
  // Tokens to take in place of generated ones, by prompt; empty: the model's own.
  std::vector<std::vector<TokenId>> continuations{};

  int64_t longest_prompt() const;
  // The work as a model of this description plans it: a decoder with an encoder begins with a token
  // of its own.
  Workload workload(const ModelDescription& model) const;
};

// Whose tokens follow a prompt: the model's own, or those of the text that the prompt was cut from.
// A model of random weights repeats itself, and would use the same experts again and again.
enum class Answers { model, text };

// Overlapping stretches of a text, all of one length.
MeasuredWork work_from_text(const Tokenizer& tokenizer, std::string_view text, int64_t prompts,
                            int64_t prompt_tokens, int64_t generate,
                            Answers answers = Answers::model);

// Sequences that follow recorded routing: the first tokens of each stretch are its prompt, the
// others are taken in place of generated ones.
MeasuredWork work_from_routing(const RecordedRouting& routing, int64_t prompts,
                               int64_t prompt_tokens);

// Plan, time and output of one run of the work.
struct Measurement {
  RunPlan plan;
  PipelineReport report;
  std::optional<Prediction> predicted;  // for this work by this plan, with foresight
  std::vector<std::vector<TokenId>> generated;
  int64_t generated_tokens = 0;
  double load_seconds = 0.0;  // before the work: memory taken and, where it holds all, weights read
  double seconds = 0.0;
  double prefill_seconds = 0.0;
  double decode_seconds = 0.0;
  int64_t prompt_tokens = 0;
  int64_t decoded_tokens = 0;  // beyond each sequence's first

  double tokens_per_second() const;  // generated, over prefill and decode, as the paper counts
  double prefill_rate() const;
  double decode_rate() const;
};

// The experts that follow on each other: learnt from the work's first prompts, until all of them
// were computed, and from the tokens generated then, which may choose otherwise. Where the work
// generates fewer tokens than the sample takes, both are learnt from prompts.
struct LearntChoices {
  CorrelationTable of_prompts;
  CorrelationTable of_generated;
};
// Plans and loads the session for a sample of the work and runs it.
LearntChoices learn_choices(Session& session, const MeasuredWork& work);

// Plans by prediction and loads the session, so that the expert cache is empty, or has all experts
// where memory has room for all weights, and runs the work greedily. The model stays loaded.
Measurement measure(Session& session, const MeasuredWork& work, const LearntChoices& learnt);

// Tells time spent on passes with prompts in them from time spent on passes that only decode.
class PassClock {
 public:
  // A pass ended that gained this number of tokens; whether it had no rows of prompts.
  void pass(bool decodes, int64_t gained);

  double prefill_seconds() const { return prefill_seconds_; }
  double decode_seconds() const { return decode_seconds_; }
  int64_t decoded_tokens() const { return decoded_tokens_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
  double prefill_seconds_ = 0.0;
  double decode_seconds_ = 0.0;
  int64_t decoded_tokens_ = 0;
};

}  // namespace klotski
