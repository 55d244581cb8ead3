#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/load.h"
#include "cli/pipeline_options.h"
#include "text/tokenizer.h"

namespace klotski {

// The same work for every setting that is compared: prompts of real text, and how much to generate.
struct MeasuredWork {
  std::vector<std::vector<TokenId>> prompts;
  int64_t generate = 0;  // tokens a prompt

  int64_t longest_prompt() const;
  Workload workload() const;
};

// Overlapping stretches of a text, all of the same length.
MeasuredWork work_from_text(const Tokenizer& tokenizer, std::string_view text, int64_t prompts,
                            int64_t prompt_tokens, int64_t generate);

// What one run of the work took.
struct Measurement {
  RunPlan plan;
  PipelineReport report;
  std::optional<Prediction> predicted;  // of the same work, where there was foresight
  std::vector<std::vector<TokenId>> generated;
  int64_t generated_tokens = 0;
  double seconds = 0.0;
  double prefill_seconds = 0.0;
  double decode_seconds = 0.0;
  int64_t prompt_tokens = 0;
  int64_t decoded_tokens = 0;  // beyond each sequence's first

  double tokens_per_second() const;  // generated, over prefill and decode, as the paper counts
  double prefill_rate() const;
  double decode_rate() const;
};

// What experts follow on which, learnt from the first prompts, until all of them were computed, and
// from the tokens generated then, which may choose otherwise; from prompts as well where the work
// generates fewer than such a sample takes.
struct LearntChoices {
  CorrelationTable of_prompts;
  CorrelationTable of_generated;
};
LearntChoices learn_choices(const OpenedModel& opened, const PipelineFlags& flags,
                            const MeasuredWork& work);

// What a run is made with besides its flags.
struct MeasuredWith {
  const LearntChoices& learnt;
  Foresight* foresight = nullptr;  // may be null
  std::string label;               // in the names of files that the flags ask for; may be empty
};

// Runs the work in a fresh pipeline, greedily.
Measurement measure(const OpenedModel& opened, const PipelineFlags& flags, const MeasuredWork& work,
                    const MeasuredWith& with);

// Tells time spent on passes with prompts in them from that of passes which only decode.
class PassClock {
 public:
  // A pass of `computed` tokens ended, which gained so many.
  void pass(int64_t computed, int64_t gained);

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
