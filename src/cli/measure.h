#pragma once

#include <cstdint>
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
};

// Overlapping stretches of a text, all of the same length.
MeasuredWork work_from_text(const Tokenizer& tokenizer, std::string_view text, int64_t prompts,
                            int64_t prompt_tokens, int64_t generate);

// What one run of the work took.
struct Measurement {
  Policy policy;
  PipelineReport report;
  std::vector<std::vector<TokenId>> generated;
  double seconds = 0.0;
  double prefill_seconds = 0.0;
  double decode_seconds = 0.0;
  int64_t prompt_tokens = 0;
  int64_t decoded_tokens = 0;  // beyond each sequence's first

  int64_t generated_tokens() const;
  double tokens_per_second() const;  // generated, over prefill and decode, as the paper counts
  double prefill_rate() const;
  double decode_rate() const;
};

// A table of what experts follow on which, learnt from a pass of the text.
CorrelationTable learn_correlation(const OpenedModel& opened, const PipelineFlags& flags,
                                   const MeasuredWork& work);

// Runs the work in a fresh pipeline, greedily. Files that the flags ask for are written with
// `label` in their names where it is not empty.
Measurement measure(const OpenedModel& opened, const PipelineFlags& flags, const MeasuredWork& work,
                    const CorrelationTable& table, const std::string& label);

}  // namespace klotski
