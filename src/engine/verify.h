#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/observe.h"
#include "kernels/ops.h"

namespace klotski {

// When a run counts as equal to its reference.
struct VerifyRules {
  double logits = 0.0;       // most relative error of the logits, where experts agree
  double margin = 0.0;       // a token counts where the best logit leads by more than this
  double least_share = 1.0;  // share of the tokens that count which must agree
  double tie = 0.0;          // experts whose scores are closer than this may change places
};

VerifyRules verify_rules(Precision precision);

struct PromptReport {
  int64_t prompt_tokens = 0;
  std::optional<double> logit_error;  // relative; absent where the reference has no logits
  bool routing_tie = false;           // up to the last prompt position: logits are not judged
  int64_t positions = 0;              // prompt positions compared with argmax_all
  int64_t positions_agreed = 0;
  int64_t greedy_tokens = 0;
  int64_t greedy_agreed = 0;
  int64_t clear = 0;  // positions of both with a margin that counts
  int64_t clear_agreed = 0;
  int64_t ties = 0;          // clear, not agreed, and experts that were nearly tied changed places
  int64_t wrong_tokens = 0;  // clear, not agreed, and no such reason
  bool passed = false;
};

struct VerifyReport {
  std::vector<PromptReport> prompts;
  int64_t clear = 0;
  int64_t clear_agreed = 0;
  bool passed = false;

  double share() const;  // share of the clear positions that agreed
};

// Judges a run against the reference. `exact` is a run in f32 (of an f32 run: itself): it gives the
// margins the reference lacks, and the experts it would have chosen.
VerifyReport verify(const std::vector<ReferencePrompt>& prompts,
                    const std::vector<ObservedPrompt>& exact,
                    const std::vector<ObservedPrompt>& run, const VerifyRules& rules);

}  // namespace klotski
