#include "schedule/pass_forming.h"

#include <algorithm>
#include <iterator>
#include <numeric>

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

// The rows of a pass while they are given out.
struct RowsLeft {
  std::vector<int64_t> of_batches;  // by micro-batch of the pass
  std::optional<int64_t>
      of_prompts{};  // all prompts together; none: no bound but the micro-batches'
};

// Gives a prompt at most `most` more rows of the pass.
void give_rows(const PassSequence& prompt, int64_t most, RowsLeft& left, int64_t& tokens) {
  int64_t& of_batch = left.of_batches[*prompt.micro_batch];
  int64_t rows = std::min({most, prompt.pending - tokens, std::max<int64_t>(of_batch, 0)});
  if (left.of_prompts) {
    rows = std::min(rows, *left.of_prompts);
    *left.of_prompts -= rows;
  }
  of_batch -= rows;
  tokens += rows;
}

// Gives prompts their rows, `tokens` by sequence. In a bounded pass the oldest prompt gets an equal
// share, then the shortest ones get theirs, and the oldest may take the rows that are left over.
void slice_prompts(const std::vector<size_t>& prompts, std::span<const PassSequence> sequences,
                   RowsLeft& left, std::vector<int64_t>& tokens) {
  if (left.of_prompts && !prompts.empty()) {
    std::vector<size_t> sharing = prompts;
    std::stable_sort(sharing.begin() + 1, sharing.end(), [&](size_t a, size_t b) {
      return sequences[a].pending < sequences[b].pending;
    });
    for (size_t n = 0; n < sharing.size(); ++n) {
      const auto others = static_cast<int64_t>(sharing.size() - n - 1);
      const int64_t share = (*left.of_prompts + others) / (others + 1);
      give_rows(sequences[sharing[n]], share, left, tokens[sharing[n]]);
    }
  }
  for (const size_t i : prompts) give_rows(sequences[i], sequences[i].pending, left, tokens[i]);
}

// Gives drafts of decoding sequences the rows that are left, one more a sequence in turn, and at
// most `most` in all.
std::vector<int64_t> give_drafts(const std::vector<size_t>& decoding,
                                 std::span<const PassSequence> sequences, size_t merged,
                                 std::vector<int64_t> left, int64_t most) {
  std::vector<int64_t> drafts(sequences.size());
  for (bool any = true; any && most > 0;) {
    any = false;
    for (const size_t i : decoding) {
      int64_t& of_batch = left[*sequences[i].micro_batch / merged];
      if (most == 0 || of_batch <= 0 || drafts[i] == sequences[i].drafts) continue;
      ++drafts[i];
      --of_batch;
      --most;
      any = true;
    }
  }
  return drafts;
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
    if (room_left == 0) break;
    if (!place(i)) continue;
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

FormedPass PassForming::form_encoding(std::span<const PassSequence> sequences) const {
  const auto batches = static_cast<size_t>(policy_.group.micro_batches);
  std::vector<int64_t> rows_left(batches, policy_.group.micro_batch_rows);
  FormedPass pass;
  std::vector<bool> has_rows(batches);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const PassSequence& sequence = sequences[i];
    if (!sequence.micro_batch || sequence.encoded == 0) continue;
    const size_t k = *sequence.micro_batch;
    if (has_rows[k] && rows_left[k] < sequence.encoded) continue;
    rows_left[k] -= sequence.encoded;
    has_rows[k] = true;
    pass.rows.push_back({i, k, sequence.encoded, false});
  }
  leave_out_empty(pass, has_rows);
  return pass;
}

// Rows that a pass of `rows` rows may have besides without borrowing more expert slots.
int64_t PassForming::rows_without_lending(int64_t rows) const {
  const bool could_borrow =
      policy_.layout.lent_slots > 0 && policy_.layout.slots_lent_to(rows) == 0;
  return could_borrow ? policy_.layout.rows_in_place - rows : policy_.group.rows();
}

FormedPass PassForming::form(std::span<const PassSequence> sequences, int64_t most_rows) const {
  const bool some_encode = std::any_of(
      sequences.begin(), sequences.end(),
      [](const PassSequence& sequence) { return sequence.micro_batch && sequence.encoded > 0; });
  if (some_encode) return form_encoding(sequences);
  std::vector<size_t> prompts;
  std::vector<size_t> decoding;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (sequences[i].micro_batch) (sequences[i].decodes() ? decoding : prompts).push_back(i);
  }
  const auto merged = static_cast<size_t>(prompts.empty() ? policy_.merged_batches() : 1);
  const size_t batches = (static_cast<size_t>(policy_.group.micro_batches) + merged - 1) / merged;
  RowsLeft left{std::vector<int64_t>(batches, policy_.group.micro_batch_rows)};
  std::vector<int64_t> tokens(sequences.size());
  for (const size_t i : decoding) {
    tokens[i] = 1;
    --left.of_batches[*sequences[i].micro_batch / merged];
  }
  if (most_rows > 0 && !decoding.empty()) {
    left.of_prompts = std::max(most_rows - std::ssize(decoding), kLeastPromptRows);
  }
  slice_prompts(prompts, sequences, left, tokens);
  int64_t most_drafts = rows_without_lending(std::reduce(tokens.begin(), tokens.end()));
  if (left.of_prompts) most_drafts = std::min(most_drafts, *left.of_prompts);
  const std::vector<int64_t> drafts =
      give_drafts(decoding, sequences, merged, left.of_batches, most_drafts);
  FormedPass pass;
  std::vector<bool> has_rows(batches);
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (tokens[i] == 0) continue;
    const size_t k = *sequences[i].micro_batch / merged;
    has_rows[k] = true;
    pass.rows.push_back(
        {i, k, tokens[i] + drafts[i], tokens[i] == sequences[i].pending, drafts[i]});
  }
  leave_out_empty(pass, has_rows);
  return pass;
}

}  // namespace klotski
