// Speculative decoding: Engine::propose_drafts() says which tokens of a pass are drafts, and
// take_tokens() which of them were right.

#include <algorithm>

#include "engine/engine.h"
#include "engine/prompt_lookup.h"

namespace klotski {

// Drafted tokens that may follow the sequence's tokens: the last token that it generates is not
// computed.
int64_t Engine::most_drafts(const Sequence& sequence) const {
  return sequence.most_tokens(pipeline_.description()) - std::ssize(sequence.tokens) - 1;
}

void Engine::propose_drafts(std::vector<PassSequence>& sequences) {
  if (draft_budget_.most_drafts() == 0) return;
  const auto decodes = [](const PassSequence& sequence) {
    return sequence.micro_batch && sequence.decodes();
  };
  int64_t explorers =
      draft_budget_.explorers(std::count_if(sequences.begin(), sequences.end(), decodes));
  for (size_t i = 0; i < sequences.size(); ++i) {
    Sequence& sequence = *sequences_[i];
    sequence.drafts.clear();
    if (!decodes(sequences[i])) continue;
    int64_t drafts = draft_budget_.worth(sequence.acceptance.expected());
    if (drafts == 0 && explorers > 0) drafts = 1;
    if (options_.drafts_unjudged) drafts = draft_budget_.most_drafts();
    sequence.drafts = prompt_lookup(sequence.tokens, std::min(drafts, most_drafts(sequence)));
    if (!sequence.drafts.empty()) --explorers;
    sequences[i].drafts = std::ssize(sequence.drafts);
  }
}

// Takes the tokens that a sequence gains: the first in any case, and those behind drafted tokens
// that are what the model chose.
void Engine::take_tokens(Sequence& sequence, const Next& next, std::vector<Progress>& progress) {
  const int64_t drafted = std::ssize(sequence.drafts);
  int64_t accepted = 0;
  sequence.draft_counts.drafted += drafted;
  while (true) {
    Progress gained = next(accepted);
    const bool goes_on = gained.finish == Finish::not_yet && accepted < drafted &&
                         gained.token == sequence.drafts[static_cast<size_t>(accepted)];
    if (goes_on) ++sequence.draft_counts.accepted;
    gained.drafts = sequence.draft_counts;
    progress.push_back(std::move(gained));
    if (!goes_on) break;
    ++accepted;
  }
  if (drafted == 0) return;
  sequence.acceptance.verified(drafted, accepted);
  pipeline_.count_drafts({.drafted = drafted, .accepted = accepted});
}

// The cache keeps the positions of all tokens of a sequence but the last one, which is computed
// next.
void Engine::keep_accepted(const std::vector<Formed>& group, KvTransaction& step) {
  for (const Formed& formed : group) {
    for (const Sequence* member : formed.members) {
      if (member->drafts.empty()) continue;
      step.keep(member->kv, std::ssize(member->tokens) - 1 - member->kv.length());
    }
  }
}

void Engine::count_pass(const std::vector<Progress>& progress, double seconds) {
  if (draft_budget_.most_drafts() == 0) return;
  int64_t rows = 0;
  int64_t drafts = 0;
  for (const PassRows& of_sequence : pass_.rows) {
    rows += of_sequence.tokens;
    drafts += of_sequence.drafts;
  }
  draft_budget_.pass_over(rows, drafts, std::ssize(progress), seconds);
}

}  // namespace klotski
