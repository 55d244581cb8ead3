#include "planner/planned_passes.h"

#include <algorithm>

namespace klotski {

PlannedPass plan_pass(const Policy& policy, const PlannedWork& work,
                      std::span<const PassSequence> sequences) {
  PlannedPass pass{.formed = PassForming(policy).form(sequences), .shape = {}};
  int64_t decoding = 0;
  int64_t seen = 0;  // positions, of all decoding rows
  for (const PassRows& rows : pass.formed.rows) {
    const PassSequence& sequence = sequences[rows.sequence];
    if (sequence.cached < work.prompt_tokens) {
      pass.prompt_rows += rows.tokens;
    } else {
      ++decoding;
      seen += sequence.cached + 1 - work.encoded();
    }
    if (rows.complete) ++pass.gained;
    pass.shape.encodes |= sequence.encoded > 0;
  }
  const auto batches = static_cast<double>(pass.formed.micro_batches);
  pass.shape = {.micro_batches = static_cast<int64_t>(pass.formed.micro_batches),
                .prompt_rows = static_cast<double>(pass.prompt_rows) / batches,
                .decoding_rows = static_cast<double>(decoding) / batches,
                .encoded = static_cast<double>(work.encoded()),
                .prompt_tokens = work.prompt_tokens,
                .logit_rows = static_cast<double>(pass.gained) / batches,
                .encodes = pass.shape.encodes};
  if (decoding > 0) {
    pass.shape.positions =
        policy.visible.attended(static_cast<double>(seen) / static_cast<double>(decoding));
  }
  return pass;
}

void PlannedPasses::admit() {
  const int64_t most = std::min(work_.at_once, policy_.group.sequences());
  const int64_t more = std::min(waiting_, most - std::ssize(running_));
  if (more <= 0) return;
  waiting_ -= more;
  running_.resize(running_.size() + static_cast<size_t>(more), work_.new_sequence());
  PassForming(policy_).admit(running_, [](size_t) { return true; });
}

std::optional<PlannedPass> PlannedPasses::next() {
  admit();
  if (running_.empty()) return {};
  PlannedPass pass = plan_pass(policy_, work_, running_);
  for (const PassRows& rows : pass.formed.rows) {
    PassSequence& sequence = running_[rows.sequence];
    sequence.cached += rows.tokens;
    sequence.pending += (rows.complete ? 1 : 0) - rows.tokens;
    sequence.encoded = 0;
  }
  // The last token that a sequence generates is not computed.
  const int64_t last = work_.prompt_tokens + work_.generated_tokens - 1;
  std::erase_if(running_, [&](const PassSequence& sequence) { return sequence.cached == last; });
  return pass;
}

}  // namespace klotski
