// Engine::admit(): which sequences that wait run next.

#include <algorithm>
#include <utility>

#include "engine/engine.h"

namespace klotski {

namespace {

// Sequences whose experts are predicted in a step, and as many more for each prompt that it
// computes: little beside the step itself. A network takes 1 to 6 ms for a sequence.
constexpr int64_t kPredictionsInAStep = 2;

}  // namespace

// Waiting sequences in the order in which they are to be admitted.
std::vector<size_t> Engine::admission_order(std::span<const PassSequence> sequences) const {
  const int64_t room = forming_.room(sequences);
  const int64_t most_waiting = scheduled_requests(pipeline_.policy().group.sequences());
  std::vector<size_t> known;  // sequences whose experts were predicted
  std::vector<ScheduledRequest> requests;
  int64_t waiting = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& sequence = *sequences_[i];
    if (sequence.expected_shares.empty()) continue;
    const bool runs = sequences[i].micro_batch.has_value();
    if (!runs && waiting == most_waiting) continue;
    waiting += runs ? 0 : 1;
    known.push_back(i);
    requests.push_back({&sequence.expected_shares, runs, sequence.overtaken});
  }
  if (room == 0 || waiting <= room) return waiting_in(sequences);
  std::vector<size_t> order = choose_requests(requests, pipeline_.predictor().shape(), room);
  for (size_t& chosen : order) chosen = known[chosen];
  return order;
}

void Engine::count_overtaken(std::span<const PassSequence> admitted) {
  int64_t later = 0;  // sequences behind the one at hand that were just admitted
  for (size_t i = sequences_.size(); i-- > 0;) {
    Sequence& sequence = *sequences_[i];
    if (!admitted[i].micro_batch) {
      sequence.overtaken += later;
    } else if (!sequence.micro_batch) {
      ++later;
    }
  }
}

// Gives waiting sequences a micro-batch, as long as all keys and values that they may come to need
// fit: an admitted sequence never lacks a page.
std::vector<PassSequence> Engine::admit() {
  std::vector<PassSequence> sequences;
  for (const auto& sequence : sequences_) {
    sequences.push_back({.cached = sequence->kv.length(),
                         .pending = sequence->pending(),
                         .micro_batch = sequence->micro_batch});
  }
  const auto place = [&](size_t i) {
    Sequence& sequence = *sequences_[i];
    return pipeline_.cache().place(sequence.kv, sequence.most_tokens(pipeline_.description()),
                                   pipeline_.policy().group.micro_batch_rows);
  };
  const bool some_run = forming_.room(sequences) < pipeline_.policy().group.sequences();
  if (!std::exchange(room_or_requests_are_new_, false) && some_run) return sequences;
  forming_.admit(sequences, place, admission_order(sequences));
  count_overtaken(sequences);
  for (size_t i = 0; i < sequences.size(); ++i) {
    sequences_[i]->micro_batch = sequences[i].micro_batch;
  }
  return sequences;
}

// Predicts the experts of sequences that run and of the oldest that wait, for later admissions.
void Engine::predict_experts(std::span<const PassSequence> sequences) {
  int64_t predictions = kPredictionsInAStep;
  int64_t waiting = scheduled_requests(pipeline_.policy().group.sequences());
  if (waiting_in(sequences).empty()) return;
  for (const PassSequence& sequence : sequences) {
    if (sequence.micro_batch && !sequence.decodes()) predictions += kPredictionsInAStep;
  }
  for (size_t i = 0; i < sequences.size() && predictions > 0; ++i) {
    if (!sequences[i].micro_batch && waiting-- <= 0) continue;
    Sequence& sequence = *sequences_[i];
    if (!sequence.expected_shares.empty()) continue;
    const std::span<const TokenId> prompt = sequence.request.prompt;
    sequence.expected_shares = pipeline_.predictor().expected_shares(
        prompt.last(std::min(prompt.size(), kPredictedTokens)));
    --predictions;
  }
}

}  // namespace klotski
