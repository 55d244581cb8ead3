#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "planner/pass_simulator.h"
#include "schedule/pass_forming.h"

namespace klotski {

// The work that a plan is made for.
struct PlannedWork {
  int64_t sequences = 1;
  int64_t prompt_tokens = 1;     // tokens of each prompt
  int64_t generated_tokens = 1;  // tokens of each continuation
  int64_t at_once = 1;           // sequences for whose keys and values there is room
  // Whether the first pass finds weights where a pass leaves them, instead of nothing.
  bool weights_in_place = false;
  // Whether all but the last token of a prompt are an encoder's input.
  bool encodes = false;

  // Tokens of an encoder's input; 0: there is none.
  int64_t encoded() const { return encodes ? prompt_tokens - 1 : 0; }
  // A sequence before its first pass.
  PassSequence new_sequence() const { return {.pending = prompt_tokens, .encoded = encoded()}; }
};

// A pass of planned work.
struct PlannedPass {
  FormedPass formed;
  PassShape shape;          // the mean of its micro-batches
  int64_t prompt_rows = 0;  // rows of all micro-batches
  int64_t gained = 0;       // sequences that gain a token
};

// The next pass of sequences of the work.
PlannedPass plan_pass(const Policy& policy, const PlannedWork& work,
                      std::span<const PassSequence> sequences);

// The passes that an engine forms of the work, in their order.
class PlannedPasses {
 public:
  // `policy` must live longer.
  PlannedPasses(const Policy& policy, const PlannedWork& work)
      : policy_(policy), work_(work), waiting_(work.sequences) {}

  // The next pass; nothing where all sequences are done.
  std::optional<PlannedPass> next();
  // Adds waiting sequences.
  void add(int64_t sequences) { waiting_ += sequences; }

 private:
  void admit();

  const Policy& policy_;
  PlannedWork work_;
  int64_t waiting_;
  std::vector<PassSequence> running_;
};

}  // namespace klotski
