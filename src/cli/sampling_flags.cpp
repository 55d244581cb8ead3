#include "cli/sampling_flags.h"

namespace klotski {

void add_sampling_flags(CLI::App& command,
                        std::vector<std::function<void(SamplingOptions&)>>& changes) {
  const auto number = [&](const char* name, Bounds<double> bounds, const char* help,
                          double SamplingOptions::*field) {
    add_number(command, name, bounds, help, [&changes, field](double value) {
      changes.push_back([=](SamplingOptions& sampling) { sampling.*field = value; });
    });
  };
  number("--temperature", {0.0, 100.0},
         "Randomness of the choice of tokens; 0 takes the most likely token (default: the model's "
         "suggestion, else 0)",
         &SamplingOptions::temperature);
  number("--top-p", {0.0, 1.0},
         "Choose among the most likely tokens that together have this probability",
         &SamplingOptions::top_p);
  number("--min-p", {0.0, 1.0},
         "Choose among tokens at least X times as likely as the most likely one",
         &SamplingOptions::min_p);
  number("--repetition-penalty", {0.01, 100.0},
         "Divide the logit of every token of prompt and answer by X",
         &SamplingOptions::repetition_penalty);
  number("--presence-penalty", {-100.0, 100.0},
         "Subtract X from the logit of every token that was generated before",
         &SamplingOptions::presence_penalty);
  number("--frequency-penalty", {-100.0, 100.0},
         "Subtract X from a token's logit for each time it was generated",
         &SamplingOptions::frequency_penalty);
  add_integer(command, "--top-k", {0, 1 << 24},
              "Choose among the N most likely tokens; 0 means all", [&changes](int64_t value) {
                changes.push_back([=](SamplingOptions& sampling) { sampling.top_k = value; });
              });
  add_integer(command, "--seed", {0, INT64_MAX}, "Seed of the random choice of tokens (default 0)",
              [&changes](int64_t value) {
                changes.push_back([=](SamplingOptions& sampling) {
                  sampling.seed = static_cast<uint64_t>(value);
                });
              });
}

}  // namespace klotski
