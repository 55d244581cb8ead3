#include "engine/draft_budget.h"

#include <algorithm>

namespace klotski {

namespace {

constexpr double kKeptOfAcceptance = 0.96;  // weight of earlier drafts beside a new one
constexpr double kKeptOfPasses = 0.9;       // weight of earlier passes beside a new one
// Latest passes tell what rows cost where their rows deviate by this share from their mean.
constexpr double kTellingDeviation = 0.04;
// Latest passes weigh as much as what was known before where their rows deviate by this share.
constexpr double kEqualDeviation = 0.2;
constexpr int64_t kFirstRest = 32;  // passes
constexpr int64_t kLongestRest = 256;
// One sequence in this many explores: a pass then takes at most a quarter longer.
constexpr int64_t kExplorersOf = 4;

}  // namespace

void AcceptanceRate::verified(int64_t drafted, int64_t accepted) {
  const int64_t judged = std::min(drafted, accepted + 1);
  right_ = kKeptOfAcceptance * right_ + static_cast<double>(accepted);
  judged_ = kKeptOfAcceptance * judged_ + static_cast<double>(judged);
}

int64_t DraftBudget::worth(double acceptance) const {
  if (!known_) return 0;
  const double least = least_acceptance();
  int64_t drafts = 0;
  for (double right = acceptance; drafts < most_drafts_ && right > least; right *= acceptance) {
    ++drafts;
  }
  return drafts;
}

int64_t DraftBudget::explorers(int64_t decoding) const {
  if (without_drafts_ < rest_ || most_drafts_ == 0) return 0;
  return (decoding + kExplorersOf - 1) / kExplorersOf;
}

double DraftBudget::least_acceptance() const {
  return latest_.seconds > 0 ? row_seconds_ * latest_.tokens / latest_.seconds : 0.0;
}

void DraftBudget::pass_over(int64_t rows, int64_t drafts, int64_t tokens, double seconds) {
  if (rows > most_rows_) return;
  const auto count = static_cast<double>(rows);
  const auto add = [](double& sum, double value) { sum = kKeptOfPasses * sum + value; };
  add(latest_.passes, 1.0);
  add(latest_.rows, count);
  add(latest_.seconds, seconds);
  add(latest_.rows_squared, count * count);
  add(latest_.rows_seconds, count * seconds);
  add(latest_.tokens, static_cast<double>(tokens));
  measure_rows();
  if (drafts == 0) {
    ++without_drafts_;
    return;
  }
  const bool explored = without_drafts_ >= rest_;
  rest_ = explored ? std::clamp(2 * rest_, kFirstRest, kLongestRest) : kFirstRest;
  without_drafts_ = 0;
}

// The slope of the line through the latest passes; the less their rows differ, the more what was
// known before weighs beside it.
void DraftBudget::measure_rows() {
  const double mean = latest_.rows / latest_.passes;
  const double variance = latest_.rows_squared / latest_.passes - mean * mean;
  const auto square = [](double value) { return value * value; };
  if (variance <= square(kTellingDeviation * mean)) return;
  const double together =
      latest_.rows_seconds / latest_.passes - mean * latest_.seconds / latest_.passes;
  const double before = known_ ? square(kEqualDeviation * mean) : 0.0;
  row_seconds_ = std::max((together + before * row_seconds_) / (variance + before), 0.0);
  known_ = true;
}

}  // namespace klotski
