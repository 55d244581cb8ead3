#include "planner/prediction.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace klotski {

namespace {

// To the next of so many values between a number and its double: passes that hardly differ are
// simulated once.
double rounded(double value, double steps = 12.0) {
  if (value < steps) return std::round(value * 4.0) / 4.0;
  return std::exp2(std::round(std::log2(value) * steps) / steps);
}
constexpr double kPositionSteps = 4.0;  // attention grows along a line: what is rounded evens out

struct Sequence {
  int64_t pending;  // tokens of its prompt
  int64_t generated;
};

void scale(Prediction& result, double factor) {
  for (double* value : {&result.prefill_seconds, &result.decode_seconds, &result.prompt_tokens,
                        &result.generated_tokens, &result.decoded_tokens}) {
    *value *= factor;
  }
  result.passes = static_cast<int64_t>(static_cast<double>(result.passes) * factor);
  result.totals *= factor;
}

// The engine's passes, one after the other.
class Run {
 public:
  Run(const Machinery& with, const Policy& policy, const PlannedWork& work)
      : policy_(policy), work_(work), simulator_(with, policy), waiting_(work.sequences) {}

  Prediction all() {
    for (admit(); !running_.empty(); admit()) pass();
    return result_;
  }

 private:
  void admit() {
    const int64_t most = std::min(work_.at_once, policy_.group_sequences());
    for (; waiting_ > 0 && std::ssize(running_) < most; --waiting_) {
      running_.push_back({work_.prompt_tokens, 0});
    }
  }

  // As Engine::form does: a token of each that decodes, and as much of the prompts as rows are
  // left.
  void pass() {
    PassShape shape{.micro_batches = std::min(policy_.micro_batches, std::ssize(running_)),
                    .prompt_tokens = work_.prompt_tokens};
    int64_t decoding = 0;
    int64_t seen = 0;
    for (const Sequence& sequence : running_) {
      if (sequence.pending > 0) continue;
      ++decoding;
      seen += work_.prompt_tokens + sequence.generated;
    }
    int64_t room = shape.micro_batches * policy_.micro_batch_rows - decoding;
    int64_t prompt_rows = 0;
    int64_t gained = 0;
    for (Sequence& sequence : running_) {
      const int64_t rows = std::min(sequence.pending, std::max<int64_t>(room, 0));
      const bool computed = sequence.pending == 0 || rows > 0;
      sequence.pending -= rows;
      room -= rows;
      prompt_rows += rows;
      if (computed && sequence.pending == 0) {
        ++sequence.generated;
        ++gained;
      }
    }
    const auto batches = static_cast<double>(shape.micro_batches);
    shape.prompt_rows = rounded(static_cast<double>(prompt_rows) / batches);
    shape.decoding_rows = rounded(static_cast<double>(decoding) / batches);
    if (decoding > 0) {
      shape.positions =
          rounded(static_cast<double>(seen) / static_cast<double>(decoding), kPositionSteps);
    }
    if (gained > 0) {
      shape.logit_rows = std::max(0.25, rounded(static_cast<double>(gained) / batches));
    }
    take(shape, prompt_rows, gained);
    std::erase_if(running_, [&](const Sequence& sequence) {
      return sequence.generated == work_.generated_tokens;
    });
  }

  void take(const PassShape& shape, int64_t prompt_rows, int64_t gained) {
    const TimelineTotals totals = simulate(shape);
    const double seconds = in_seconds(totals.elapsed);
    result_.totals += totals;
    result_.prompt_tokens += static_cast<double>(prompt_rows);
    result_.generated_tokens += static_cast<double>(gained);
    if (prompt_rows > 0) {
      result_.prefill_seconds += seconds;
    } else {
      result_.decode_seconds += seconds;
      result_.decoded_tokens += static_cast<double>(gained);
    }
    ++result_.passes;
  }

  // The second pass of a shape stands for all that follow, the first where only positions changed.
  TimelineTotals simulate(const PassShape& shape) {
    const RowCounts rows{shape.micro_batches, shape.prompt_rows, shape.decoding_rows,
                         shape.logit_rows};
    const std::pair key(rows, shape.positions);
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    TimelineTotals pass = simulator_.play(shape);
    if (result_.passes == 0) return pass;
    if (std::exchange(last_rows_, rows) != rows) pass = simulator_.play(shape);
    return known_.emplace(key, pass).first->second;
  }

  const Policy& policy_;
  const PlannedWork& work_;
  PassSimulator simulator_;
  int64_t waiting_;
  std::vector<Sequence> running_;
  using RowCounts = std::tuple<int64_t, double, double, double>;
  RowCounts last_rows_;
  std::map<std::pair<RowCounts, double>, TimelineTotals> known_;  // by positions too
  Prediction result_;
};

}  // namespace

Prediction predict(const Machinery& with, const Policy& policy, const PlannedWork& work) {
  // After some groups one is like the other.
  constexpr int64_t kGroups = 8;
  PlannedWork simulated = work;
  simulated.sequences =
      std::min(work.sequences, kGroups * std::min(work.at_once, policy.group_sequences()));
  Prediction result = Run(with, policy, simulated).all();
  scale(result, static_cast<double>(work.sequences) / static_cast<double>(simulated.sequences));
  return result;
}

}  // namespace klotski
