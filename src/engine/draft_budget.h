#pragma once

#include <cstdint>

namespace klotski {

// Drafted tokens of a sequence or of an engine: how many were verified and how many were right.
struct DraftCounts {
  int64_t drafted = 0;
  int64_t accepted = 0;

  DraftCounts& operator+=(const DraftCounts& more) {
    drafted += more.drafted;
    accepted += more.accepted;
    return *this;
  }
  bool operator==(const DraftCounts&) const = default;
};

// How probably the next drafted token of a sequence is right, by its latest drafts.
class AcceptanceRate {
 public:
  // The first `accepted` of `drafted` tokens were right. Tokens behind a wrong one are not judged.
  void verified(int64_t drafted, int64_t accepted);
  double expected() const { return right_ / judged_; }

 private:
  double right_ = 0.5;  // a new sequence is taken to accept one draft in three
  double judged_ = 1.5;
};

// Seconds of a pass as a line over its rows, a + b R, learnt from passes as they end (a Kalman
// filter): a new pass changes b the more, the more its rows differ from those before and the longer
// there was no such pass.
class PassTimes {
 public:
  void pass_over(int64_t rows, double seconds);

  double row_seconds() const { return row_; }  // b

 private:
  bool begun_ = false;
  double fixed_ = 0.0;  // a
  double row_ = 0.0;    // b
  double fixed_variance_ = 0.0;
  double row_variance_ = 0.0;
  double covariance_ = 0.0;         // of a and b
  double squared_deviation_ = 0.0;  // of passes from the line, as a share of their time
};

// Says how many drafted tokens are worth their rows. A pass of R rows takes about a + b R seconds:
// where weights are brought or read for every pass, a is most of it and rows are nearly free; where
// the processor computes all the time, b R is. One more row, whose token is accepted with
// probability p, is worth it where p tokens in b seconds are more than the tokens a second that
// passes gain anyway. Both rates are measured; the tokens do not depend on them. So drafts end by
// themselves where they lose. Where few were made for a while, half of the sequences draft one
// token each in one pass, to learn what rows cost and whether texts begin to repeat themselves;
// where many were made for a while, a pass has none.
class DraftBudget {
 public:
  // Passes of more than `most_rows` rows, those of long prompts, are left out, and so are the first
  // ones, which find caches cold.
  DraftBudget(int64_t most_drafts, int64_t most_rows);

  int64_t most_drafts() const { return most_drafts_; }
  // Drafts of a sequence whose drafted tokens are accepted with this probability.
  int64_t worth(double acceptance) const;
  // Sequences of the next pass, of `decoding`, that draft a token to learn.
  int64_t explorers(int64_t decoding) const;

  // A pass ended that computed `rows` rows, drafts included, and gained `tokens` tokens.
  void pass_over(int64_t rows, int64_t drafts, int64_t tokens, double seconds);

  // The least probability with which a drafted token is worth its row; above 1: none is.
  double least_acceptance() const;

 private:
  int64_t most_drafts_;
  int64_t most_rows_;
  PassTimes times_;
  int64_t passes_ = 0;   // that were not left out for their rows
  double tokens_ = 0.0;  // of the latest passes, older ones weighing less, and their seconds
  double seconds_ = 0.0;
  int64_t with_few_drafts_ = 0;   // passes since the last one with many
  int64_t rest_ = 1;              // so many passes before sequences explore
  int64_t with_many_drafts_ = 0;  // passes since the last one with few
  int64_t unchecked_;             // so many passes before one has no drafts
};

}  // namespace klotski
