#include "batch/batch_plan.h"

#include <algorithm>

#include "base/error.h"

namespace klotski {

namespace {

constexpr uint64_t kCopiesOfALine = 2;       // in the piece of the input, and by itself
constexpr uint64_t kCopiesOfText = 3;        // in the row's JSON, its prompt, its tokens
constexpr uint64_t kLeastBytesOfAToken = 2;  // bytes of JSON, or nearly so
constexpr int64_t kUsualBytesOfAToken = 4;   // bytes of English text

// Tokens of an average row by its size, or of the longest row that was looked at.
int64_t tokens_of_average_row(const BatchRows& rows) {
  const int64_t bytes =
      rows.size.rows == 0 ? 0 : static_cast<int64_t>(rows.size.bytes) / rows.size.rows;
  return std::max(rows.usual.most_tokens, bytes / kUsualBytesOfAToken + rows.max_tokens);
}

void plan_and_load(Session& session, const Workload& workload) {
  session.plan(workload, PlanBy::prediction);
  session.load();
}

}  // namespace

Workload workload_of(const BatchRows& rows, const ModelDescription& model) {
  // An encoder has positions of its own.
  const int64_t positions = (model.encoder ? 2 : 1) * model.max_positions;
  const auto bound = [&](int64_t tokens) {
    return std::min({tokens, positions, rows.context.value_or(INT64_MAX)});
  };
  const int64_t generated = std::max<int64_t>(1, rows.usual.generated_tokens);
  const int64_t most = bound(static_cast<int64_t>(rows.size.longest_bytes / kLeastBytesOfAToken) +
                             std::max(rows.max_tokens, generated));
  return {.sequences = std::max<int64_t>(1, rows.size.rows),
          .tokens_per_sequence = most,
          .prompt_tokens = most,
          .input_bytes = kCopiesOfALine * rows.size.longest_bytes +
                         std::max(kCopiesOfText * rows.size.longest_bytes, rows.size.json_bytes),
          .typical_tokens = std::min(most, bound(rows.usual.prompt_tokens + generated)),
          .generated_tokens = generated};
}

Workload load_for_batch(Session& session, const BatchRows& rows) {
  const Workload workload = workload_of(rows, session.description());
  try {
    plan_and_load(session, workload);
    return workload;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::does_not_fit) throw;
  }
  Workload shorter = workload;
  shorter.tokens_per_sequence = std::min(workload.tokens_per_sequence, tokens_of_average_row(rows));
  shorter.prompt_tokens = shorter.tokens_per_sequence;
  plan_and_load(session, shorter);
  return shorter;
}

BatchWindow window_for(const Policy& policy, const UsualRow& usual) {
  BatchWindow window;
  window.rows += policy.group.sequences();
  window.pending_tokens = std::max(window.pending_tokens, window.rows * usual.prompt_tokens);
  return window;
}

}  // namespace klotski
