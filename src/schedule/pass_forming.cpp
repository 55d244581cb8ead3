#include "schedule/pass_forming.h"

#include <algorithm>

#include "schedule/request_batching.h"

namespace klotski {

namespace {

// Numbers the micro-batches that have rows, from 0.
void leave_out_empty(FormedPass& pass, const std::vector<bool>& has_rows) {
  std::vector<size_t> number(has_rows.size());
  for (size_t k = 0; k < has_rows.size(); ++k) {
    number[k] = pass.micro_batches;
    if (has_rows[k]) ++pass.micro_batches;
  }
  for (PassRows& rows : pass.rows) rows.micro_batch = number[rows.micro_batch];
}

}  // namespace

std::vector<size_t> waiting_in(std::span<const PassSequence> sequences) {
  std::vector<size_t> waiting;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (!sequences[i].micro_batch) waiting.push_back(i);
  }
  return waiting;
}

int64_t PassForming::room(std::span<const PassSequence> sequences) const {
  return policy_.group.sequences() -
         std::count_if(sequences.begin(), sequences.end(), [](const PassSequence& sequence) {
           return sequence.micro_batch.has_value();
         });
}

void PassForming::admit(std::span<PassSequence> sequences, const std::function<bool(size_t)>& place,
                        std::optional<std::span<const size_t>> order) const {
  std::vector<MicroBatchLoad> loads(static_cast<size_t>(policy_.group.micro_batches));
  for (const PassSequence& sequence : sequences) {
    if (!sequence.micro_batch) continue;
    MicroBatchLoad& load = loads[*sequence.micro_batch];
    load.tokens += sequence.cached + sequence.pending;
    ++load.requests;
  }
  const std::vector<size_t> waiting = waiting_in(sequences);
  int64_t room_left = room(sequences);
  std::vector<size_t> admitted;
  std::vector<int64_t> lengths;
  for (const size_t i : order.value_or(waiting)) {
    if (room_left == 0 || !place(i)) break;
    admitted.push_back(i);
    lengths.push_back(sequences[i].pending);
    --room_left;
  }
  const std::vector<size_t> micro_batch_of =
      batch_requests(lengths, loads, policy_.group.micro_batch);
  for (size_t i = 0; i < admitted.size(); ++i) {
    sequences[admitted[i]].micro_batch = micro_batch_of[i];
  }
}

FormedPass PassForming::form(std::span<const PassSequence> sequences) const {
  const bool all_decode = std::all_of(
      sequences.begin(), sequences.end(),
      [](const PassSequence& sequence) { return !sequence.micro_batch || sequence.decodes(); });
  const auto merged = static_cast<size_t>(all_decode ? policy_.merged_batches() : 1);
  const size_t batches = (static_cast<size_t>(policy_.group.micro_batches) + merged - 1) / merged;
  std::vector<int64_t> prompt_rows(batches, policy_.group.micro_batch_rows);
  for (const PassSequence& sequence : sequences) {
    if (sequence.micro_batch && sequence.decodes()) --prompt_rows[*sequence.micro_batch / merged];
  }
  FormedPass pass;
  std::vector<bool> has_rows(batches);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const PassSequence& sequence = sequences[i];
    if (!sequence.micro_batch) continue;
    const size_t k = *sequence.micro_batch / merged;
    int64_t tokens = 1;
    if (!sequence.decodes()) {
      tokens = std::min(sequence.pending, prompt_rows[k]);
      if (tokens <= 0) continue;
      prompt_rows[k] -= tokens;
    }
    has_rows[k] = true;
    pass.rows.push_back({i, k, tokens, tokens == sequence.pending});
  }
  leave_out_empty(pass, has_rows);
  return pass;
}

}  // namespace klotski
