#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "schedule/policy.h"

namespace klotski {

// A sequence that waits or runs, as far as the forming of passes needs to know it.
struct PassSequence {
  int64_t cached = 0;                   // tokens computed in earlier passes
  int64_t pending = 1;                  // tokens not computed yet: the rest of a prompt, or one
  std::optional<size_t> micro_batch{};  // none: it waits to be admitted
  // Pending tokens that are an encoder's input: one pass computes all of them, and nothing else.
  int64_t encoded = 0;
  int64_t drafts = 0;  // drafted tokens to verify behind the pending one, where it decodes

  bool decodes() const { return pending == 1; }
};

// The tokens of one sequence that a pass computes.
struct PassRows {
  size_t sequence = 0;     // index into the sequences that the pass was formed of
  size_t micro_batch = 0;  // index in the pass
  int64_t tokens = 0;
  bool complete = false;  // no token stays pending: the sequence gains one
  int64_t drafts = 0;     // the last of the tokens, which are drafts

  bool operator==(const PassRows&) const = default;
};

struct FormedPass {
  size_t micro_batches = 0;    // each has rows
  std::vector<PassRows> rows;  // rows in the order of the sequences

  // Whether each sequence computes one token, and drafts behind it.
  bool decodes() const {
    return std::all_of(rows.begin(), rows.end(),
                       [](const PassRows& one) { return one.tokens - one.drafts == 1; });
  }
  bool operator==(const FormedPass&) const = default;
};

// Indices of the sequences that wait to be admitted.
std::vector<size_t> waiting_in(std::span<const PassSequence> sequences);

// Says which tokens of which sequences the next pass computes, in which micro-batch: for the
// engine's passes and for the planner's simulated ones.
class PassForming {
 public:
  // `policy` must live longer.
  explicit PassForming(const Policy& policy) : policy_(policy) {}

  // Number of sequences that can be admitted in addition to the running ones.
  int64_t room(std::span<const PassSequence> sequences) const;

  // Admits waiting sequences as long as the group has room, but those for which `place` finds no
  // memory: the sequences in `order`, an index each, in that order; without an order all of them in
  // their own. Sequences admitted together are spread so that micro-batches have about
  // as many tokens; a sequence stays in its micro-batch.
  void admit(std::span<PassSequence> sequences, const std::function<bool(size_t)>& place,
             std::optional<std::span<const size_t>> order = {}) const;

  // The next pass of the admitted sequences. Each gives its one pending token, or as much of its
  // prompt as the rows that are left in its micro-batch. While all sequences decode, micro-batches
  // are merged as the policy says. While some have an encoder's input, it alone is computed: of as
  // many sequences as find rows for all of it, of one in a micro-batch at least.
  // `most_rows`, where it is not 0, bounds the rows of a pass in which some sequence decodes, so
  // that prompts do not hold up those that generate: sequences that decode come first, prompts
  // share the other rows, at least kLeastPromptRows. The oldest prompt gets an equal share at
  // least, so that none starves; shares that shorter prompts do not need go to longer ones.
  // Drafts get rows that prompts leave, one more a sequence in turn, but none for which expert
  // slots would have to be lent.
  FormedPass form(std::span<const PassSequence> sequences, int64_t most_rows = 0) const;

  static constexpr int64_t kLeastPromptRows = 16;

 private:
  FormedPass form_encoding(std::span<const PassSequence> sequences) const;
  int64_t rows_without_lending(int64_t rows) const;

  const Policy& policy_;
};

}  // namespace klotski
