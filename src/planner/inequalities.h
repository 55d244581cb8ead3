#pragma once

// Klotski's constraint-sensitive planner (section 7): how many micro-batches a group needs so that
// computing hides every transfer of an MoE block. Inequalities 4 to 7 compare the computing before
// one of four points of figure 9 with the transfers that must have ended by then.
//
// They leave out two things that `schedule/simulate` sees: cold experts come one by one after the
// first, and no cold expert is known before a gate has chosen it. They are a first choice of the
// group, not the last word.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace klotski {

// Measured times of one block, in seconds.
struct BlockSeconds {
  double attention_compute = 0;   // t_c_A, one micro-batch
  double gate_compute = 0;        // t_c_G, one micro-batch
  double attention_transfer = 0;  // t_I/O_A, weights of one layer
  double gate_transfer = 0;       // t_I/O_G
  double expert_transfer = 0;     // t_I/O_E, one expert

  // t_c_E: one expert by its number of tokens, at least one; asked for fractions, as these are
  // expected values.
  std::function<double(double tokens)> expert_compute{};
};

// How tokens choose experts.
struct ExpertChoices {
  std::vector<double> popularity{};  // each expert's share of all choices; together 1
  int64_t experts_per_token = 0;     // k: a token's chance to choose an expert is k times its share
  int64_t hot_experts = 0;           // K: the most popular ones, prefetched during attention
};

// The points of figure 9, where computing needs weights.
enum class Arrow {
  gate,            // (I), inequality 4
  hot_experts,     // (II), inequality 5
  cold_experts,    // (III), inequality 6
  next_attention,  // (IV), inequality 7
};
inline constexpr size_t kArrows = 4;
std::string_view arrow_name(Arrow arrow);
int inequality_number(Arrow arrow);  // the paper's number

struct Inequality {
  Arrow arrow = Arrow::gate;
  double left_seconds = 0;   // computing before the arrow
  double right_seconds = 0;  // transfers that must end before the arrow

  double slack_seconds() const { return left_seconds - right_seconds; }  // negative: a bubble
  bool holds() const { return slack_seconds() >= 0; }
};

using Inequalities = std::array<Inequality, kArrows>;  // in the order of the arrows

// The four inequalities for a group of `micro_batches` (n) with `tokens_per_micro_batch` tokens
// each. A queue expected to be shorter than one expert counts in inequality 6 with its length in
// place of 1.
Inequalities inequalities(const BlockSeconds& seconds, const ExpertChoices& choices,
                          int64_t micro_batches, int64_t tokens_per_micro_batch);

// The inequality with the least slack, the first of equal ones.
Inequality tightest(const Inequalities& all);

struct GroupChoice {
  int64_t micro_batches = 0;
  // Inequalities for this number of micro-batches: all hold, or tightest() says which fails by how
  // much.
  Inequalities inequalities{};

  bool without_bubbles() const { return tightest(inequalities).holds(); }
};

// The smallest group of at most `limit` micro-batches for which all four hold; where there is none,
// the group with the shortest bubble per micro-batch. Tries one after the other, as a measured
// expert_compute may be any function.
GroupChoice smallest_group(const BlockSeconds& seconds, const ExpertChoices& choices, int64_t limit,
                           int64_t tokens_per_micro_batch);

}  // namespace klotski
