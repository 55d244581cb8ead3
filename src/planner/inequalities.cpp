#include "planner/inequalities.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/error.h"

namespace klotski {

namespace {

void check(const BlockSeconds& seconds) {
  for (const double value :
       {seconds.attention_compute, seconds.gate_compute, seconds.attention_transfer,
        seconds.gate_transfer, seconds.expert_transfer}) {
    if (!std::isfinite(value) || value < 0) {
      fail(ErrorKind::internal, "inequalities: a time must be finite and not negative, found {} s",
           value);
    }
  }
  if (!seconds.expert_compute)
    fail(ErrorKind::internal, "inequalities: no time of an expert is given");
}

void check(const ExpertChoices& choices) {
  const auto experts = static_cast<int64_t>(choices.popularity.size());
  if (choices.experts_per_token < 1 || choices.experts_per_token > experts ||
      choices.hot_experts < 0 || choices.hot_experts > experts) {
    fail(ErrorKind::internal, "inequalities: {} experts cannot have {} per token and {} hot",
         experts, choices.experts_per_token, choices.hot_experts);
  }
  const bool shares = std::all_of(choices.popularity.begin(), choices.popularity.end(),
                                  [](double share) { return std::isfinite(share) && share >= 0; });
  const double sum = std::accumulate(choices.popularity.begin(), choices.popularity.end(), 0.0);
  if (!shares || std::abs(sum - 1) > 1e-6) {
    fail(ErrorKind::internal,
         "inequalities: popularity must be shares that sum to 1, found the sum {}", sum);
  }
}

void check_positive(const char* what, int64_t value) {
  if (value < 1)
    fail(ErrorKind::internal, "inequalities: {} must be positive, found {}", what, value);
}

// The chance of a token to choose each expert, hottest first. A token chooses an expert at most
// once, so that a share above 1 / k can only be an estimate: every token chooses that expert.
std::vector<double> chances_hottest_first(const ExpertChoices& choices) {
  check(choices);
  std::vector<double> chances;
  chances.reserve(choices.popularity.size());
  for (const double share : choices.popularity) {
    chances.push_back(std::min(1.0, share * static_cast<double>(choices.experts_per_token)));
  }
  std::sort(chances.begin(), chances.end(), std::greater<>());
  return chances;
}

// 1 - (1 - chance) ^ tokens, exact for small chances too.
double activation(double chance, double tokens) {
  return tokens > 0 ? -std::expm1(tokens * std::log1p(-chance)) : 0;
}

// Experts [begin, end) of chances: how many are activated, and the seconds they compute.
struct Activated {
  double experts = 0;
  double compute_seconds = 0;
};

Activated activated(const BlockSeconds& seconds, const double* begin, const double* end,
                    double tokens) {
  Activated sum;
  for (const double* chance = begin; chance != end; ++chance) {
    const double active = activation(*chance, tokens);
    if (active <= 0) continue;
    const double own_tokens = std::max(1.0, tokens * *chance / active);  // if it is activated
    sum.experts += active;
    sum.compute_seconds += active * seconds.expert_compute(own_tokens);
  }
  return sum;
}

struct Group {
  double micro_batches = 0;  // n
  double tokens = 0;         // tokens of all of them
  size_t hot_experts = 0;    // K
};

// Left sides are the computing before an arrow, right sides the transfers; both add up from arrow
// to arrow.
Inequalities evaluate(const BlockSeconds& seconds, const std::vector<double>& chances,
                      const Group& group) {
  const double* first = chances.data();
  const double* cold_first = first + group.hot_experts;
  const Activated hot = activated(seconds, first, cold_first, group.tokens);
  const Activated cold = activated(seconds, cold_first, first + chances.size(), group.tokens);
  const double hot_experts = static_cast<double>(group.hot_experts);

  const double attention = group.micro_batches * seconds.attention_compute;
  const double attention_and_gate =
      group.micro_batches * (seconds.attention_compute + seconds.gate_compute);
  const double until_cold = attention_and_gate + hot.compute_seconds;
  const auto with_experts = [&](double experts) {
    return seconds.gate_transfer + experts * seconds.expert_transfer;
  };
  return {
      {{Arrow::gate, attention, seconds.gate_transfer},
       {Arrow::hot_experts, attention_and_gate, with_experts(hot_experts)},
       {Arrow::cold_experts, until_cold, with_experts(hot_experts + std::min(1.0, cold.experts))},
       {Arrow::next_attention, until_cold + cold.compute_seconds,
        with_experts(hot_experts + cold.experts) + seconds.attention_transfer}}};
}

}  // namespace

std::string_view arrow_name(Arrow arrow) {
  switch (arrow) {
    case Arrow::gate:
      return "gate";
    case Arrow::hot_experts:
      return "hot experts";
    case Arrow::cold_experts:
      return "cold experts";
    case Arrow::next_attention:
      return "next attention";
  }
  fail(ErrorKind::internal, "inequalities: no arrow has the number {}", static_cast<int>(arrow));
}

int inequality_number(Arrow arrow) { return 4 + static_cast<int>(arrow); }

Inequalities inequalities(const BlockSeconds& seconds, const ExpertChoices& choices,
                          int64_t micro_batches, int64_t tokens_per_micro_batch) {
  check(seconds);
  check_positive("micro-batches of a group", micro_batches);
  check_positive("tokens of a micro-batch", tokens_per_micro_batch);
  return evaluate(
      seconds, chances_hottest_first(choices),
      {.micro_batches = static_cast<double>(micro_batches),
       .tokens = static_cast<double>(micro_batches) * static_cast<double>(tokens_per_micro_batch),
       .hot_experts = static_cast<size_t>(choices.hot_experts)});
}

Inequality tightest(const Inequalities& all) {
  return *std::min_element(all.begin(), all.end(), [](const Inequality& a, const Inequality& b) {
    return a.slack_seconds() < b.slack_seconds();
  });
}

GroupChoice smallest_group(const BlockSeconds& seconds, const ExpertChoices& choices, int64_t limit,
                           int64_t tokens_per_micro_batch) {
  check_positive("the largest group", limit);
  GroupChoice best;
  double best_slack = 0;  // seconds per micro-batch
  for (int64_t n = 1; n <= limit; ++n) {
    const GroupChoice choice{n, inequalities(seconds, choices, n, tokens_per_micro_batch)};
    if (choice.without_bubbles()) return choice;
    const double slack = tightest(choice.inequalities).slack_seconds() / static_cast<double>(n);
    if (n == 1 || slack > best_slack) {
      best = choice;
      best_slack = slack;
    }
  }
  return best;
}

}  // namespace klotski
