#include "engine/draft_budget.h"

#include <algorithm>
#include <cmath>

namespace klotski {

namespace {

constexpr double kKeptOfAcceptance = 0.96;  // weight of earlier drafts beside a new one
constexpr double kKeptOfPasses = 0.9;       // weight of earlier passes beside a new one

// Before anything is known rows take half of a pass's time, with this deviation.
constexpr double kRowsShare = 0.5;
constexpr double kRowsShareDeviation = 0.25;
// From pass to pass the line moves by about these shares of a pass's time.
constexpr double kFixedDrift = 0.03;
constexpr double kRowsDrift = 0.02;
// Times of equal passes deviate by a share between these; a pass that is further off than some of
// its deviations counts as if it were that far off.
constexpr double kLeastDeviation = 0.05;
constexpr double kMostDeviation = 0.3;
constexpr double kOutlier = 3.0;

// A draft that is wrong more often than this is worth no row, however little rows seem to cost.
constexpr double kLeastAcceptance = 0.08;
constexpr int64_t kWarmingPasses = 2;
constexpr int64_t kFirstRest = 32;  // passes
constexpr int64_t kLongestRest = 256;
constexpr int64_t kFirstUnchecked = 4;  // passes
constexpr int64_t kMostUnchecked = 256;
constexpr int64_t kExplorersOf = 2;  // one sequence in this many explores
// A pass with a draft for one sequence in this many tells what rows cost; no exploring is needed.
constexpr int64_t kManyDraftsFor = 4;

double squared(double value) { return value * value; }

}  // namespace

void AcceptanceRate::verified(int64_t drafted, int64_t accepted) {
  const int64_t judged = std::min(drafted, accepted + 1);
  right_ = kKeptOfAcceptance * right_ + static_cast<double>(accepted);
  judged_ = kKeptOfAcceptance * judged_ + static_cast<double>(judged);
}

void PassTimes::pass_over(int64_t rows, double seconds) {
  const auto count = static_cast<double>(rows);
  if (!begun_) {
    begun_ = true;
    row_ = kRowsShare * seconds / count;
    fixed_ = seconds - row_ * count;
    row_variance_ = squared(kRowsShareDeviation * seconds / count);
    covariance_ = -count * row_variance_;
    fixed_variance_ = squared(count) * row_variance_ + squared(kLeastDeviation * seconds);
    squared_deviation_ = squared(kLeastDeviation);
    return;
  }
  const double expected = fixed_ + row_ * count;
  fixed_variance_ += squared(kFixedDrift * expected);
  row_variance_ += squared(kRowsDrift * expected / count);
  const double deviation =
      std::clamp(squared_deviation_, squared(kLeastDeviation), squared(kMostDeviation));
  const double with_fixed = fixed_variance_ + count * covariance_;  // covariances with the time
  const double with_row = covariance_ + count * row_variance_;
  const double variance = with_fixed + count * with_row + deviation * squared(expected);
  const double most = kOutlier * std::sqrt(variance);
  const double off = std::clamp(seconds - expected, -most, most);
  fixed_ += with_fixed / variance * off;
  row_ += with_row / variance * off;
  if (row_ < 0) {  // neither part takes less than no time: the other one takes all of the pass
    fixed_ += row_ * count;
    row_ = 0;
  } else if (fixed_ < 0) {
    row_ += fixed_ / count;
    fixed_ = 0;
  }
  fixed_variance_ -= squared(with_fixed) / variance;
  row_variance_ -= squared(with_row) / variance;
  covariance_ -= with_fixed * with_row / variance;
  squared_deviation_ = kKeptOfPasses * squared_deviation_ +
                       (1.0 - kKeptOfPasses) * squared(off / std::max(expected, seconds));
}

DraftBudget::DraftBudget(int64_t most_drafts, int64_t most_rows)
    : most_drafts_(most_drafts), most_rows_(most_rows), unchecked_(kFirstUnchecked) {}

int64_t DraftBudget::worth(double acceptance) const {
  if (tokens_ == 0 || with_many_drafts_ >= unchecked_) return 0;
  const double least = least_acceptance();
  int64_t drafts = 0;
  for (double right = acceptance; drafts < most_drafts_ && right > least; right *= acceptance) {
    ++drafts;
  }
  return drafts;
}

int64_t DraftBudget::explorers(int64_t decoding) const {
  if (with_few_drafts_ < rest_ || most_drafts_ == 0) return 0;
  return (decoding + kExplorersOf - 1) / kExplorersOf;
}

double DraftBudget::least_acceptance() const {
  const double cost = seconds_ > 0 ? times_.row_seconds() * tokens_ / seconds_ : 0.0;
  return std::max(cost, kLeastAcceptance);
}

void DraftBudget::pass_over(int64_t rows, int64_t drafts, int64_t tokens, double seconds) {
  if (rows > most_rows_ || passes_++ < kWarmingPasses) return;
  times_.pass_over(rows, seconds);
  tokens_ = kKeptOfPasses * tokens_ + static_cast<double>(tokens);
  seconds_ = kKeptOfPasses * seconds_ + seconds;
  const bool explored = drafts > 0 && with_few_drafts_ >= rest_;
  const bool many = kManyDraftsFor * drafts >= rows - drafts;
  if (explored) {
    rest_ = std::clamp(2 * rest_, kFirstRest, kLongestRest);
  } else if (many) {
    rest_ = kFirstRest;
  }
  if (with_many_drafts_ >= unchecked_) unchecked_ = std::min(2 * unchecked_, kMostUnchecked);
  with_few_drafts_ = explored || many ? 0 : with_few_drafts_ + 1;
  with_many_drafts_ = many ? with_many_drafts_ + 1 : 0;
}

}  // namespace klotski
