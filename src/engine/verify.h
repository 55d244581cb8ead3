#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "engine/prepared_model.h"

namespace klotski {

// One prompt of a reference file: what a trusted implementation computed for it.
struct ReferencePrompt {
  std::vector<TokenId> input;
  std::vector<float> last_logits;   // at the last prompt position; may be empty
  std::vector<TokenId> argmax_all;  // most likely token after every prompt position; may be empty
  std::vector<TokenId> greedy;      // the greedy continuation
  std::vector<double> margins;      // best minus second logit at each greedy step; may be empty
};

// Reads `prompts[]` of a reference.json; other fields are left alone.
std::vector<ReferencePrompt> parse_reference(std::string_view json_text, std::string_view what,
                                             const ModelDescription& model);

struct VerifyTolerance {
  double logits = 1e-4;  // largest difference over the largest magnitude of the reference
  double margin = 1e-3;  // a token must agree where the best logit leads by more than this
};

struct PromptReport {
  int64_t prompt_tokens = 0;
  std::optional<double> logit_error;  // relative; absent where the reference has no logits
  int64_t positions = 0;              // prompt positions compared with argmax_all
  int64_t positions_agreed = 0;
  int64_t greedy_tokens = 0;
  int64_t greedy_agreed = 0;
  int64_t wrong_tokens = 0;  // disagreements, in prompt or continuation, with a clear margin
  bool passed = false;
};

// Runs the prompts one by one and their continuations together, always on the reference's own
// tokens, so that a tie decided the other way does not change what follows.
// `progress` is told after every batch how many tokens were computed, of how many.
std::vector<PromptReport> verify(
    Pipeline& pipeline, const std::vector<ReferencePrompt>& prompts,
    const VerifyTolerance& tolerance,
    const std::function<void(uint64_t done, uint64_t total)>& progress = {});

// What a pipeline must have room for to verify the prompts.
Workload verify_workload(const std::vector<ReferencePrompt>& prompts);

}  // namespace klotski
