// Engine::admit() and Engine::make_room(): which sequences run next, and which have to wait again.

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "engine/engine.h"

namespace klotski {

namespace {

// Sequences whose experts are predicted in a step, and again this many for each prompt that the
// step computes. A network takes 1 to 6 ms for a sequence, little compared with the step.
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

// Finds memory for a waiting sequence beside `running` others.
bool Engine::place(Sequence& sequence, int64_t running) {
  const bool grows = options_.booking == KvBooking::as_it_grows;
  const int64_t tokens =
      grows ? std::ssize(sequence.tokens) + 1 : sequence.most_tokens(pipeline_.description());
  KvPlacement placement{.spare_pages = grows ? running : 0};
  if (options_.prefix_cache) placement.tokens = sequence.tokens;
  return pipeline_.cache().place(sequence.kv, tokens, pipeline_.policy().group.micro_batch_rows,
                                 placement);
}

// Gives waiting sequences a micro-batch and memory.
std::vector<PassSequence> Engine::admit() {
  std::vector<PassSequence> sequences;
  for (const auto& sequence : sequences_) {
    sequences.push_back({.cached = sequence->kv.length(),
                         .pending = sequence->pending(),
                         .micro_batch = sequence->micro_batch,
                         .encoded = sequence->encodes() ? sequence->encoded : 0});
  }
  int64_t running = pipeline_.policy().group.sequences() - forming_.room(sequences);
  if (!std::exchange(room_or_requests_are_new_, false) && running > 0) return sequences;
  bool held_up = false;  // by a sequence that too many have overtaken
  const auto try_to_place = [&](size_t i) {
    Sequence& sequence = *sequences_[i];
    if (held_up || !place(sequence, running)) {
      held_up |= sequence.overtaken >= kMostOvertaken;
      return false;
    }
    ++running;
    sequences[i].cached = sequence.kv.length();
    sequences[i].pending = sequence.pending();
    return true;
  };
  forming_.admit(sequences, try_to_place, admission_order(sequences));
  count_overtaken(sequences);
  for (size_t i = 0; i < sequences.size(); ++i) {
    sequences_[i]->micro_batch = sequences[i].micro_batch;
  }
  return sequences;
}

// The sequence to preempt so that the formed pass finds pages: the one that came last among those
// whose pages lie where pages are missing. None: there are enough.
std::optional<size_t> Engine::first_to_preempt(std::span<const PassSequence> sequences) const {
  const PagedKvCache& cache = pipeline_.cache();
  std::array<int64_t, 2> missing = {-cache.free_pages(false), -cache.free_pages(true)};
  for (const PassRows& rows : pass_.rows) {
    const KvSequence& kv = sequences_[rows.sequence]->kv;
    missing[kv.spilled() ? 1 : 0] += cache.pages_to_book(kv, rows.tokens);
  }
  for (size_t i = sequences.size(); i-- > 0;) {
    if (sequences[i].micro_batch && missing[sequences_[i]->kv.spilled() ? 1 : 0] > 0) return i;
  }
  return std::nullopt;
}

void Engine::preempt(Sequence& sequence) {
  pipeline_.cache().vacate(sequence.kv);
  sequence.micro_batch.reset();
  room_or_requests_are_new_ = true;
  ++preemptions_;
}

// Forms the next pass, without drafts where pages run out, then of fewer sequences. The oldest one
// keeps its pages, since a request that cannot fit alone was refused, unless it outgrows the memory
// and goes on in the file.
void Engine::make_room(std::vector<PassSequence>& sequences) {
  pass_ = forming_.form(sequences, options_.pass_rows);
  bool drafts_may_go = true;  // no sequence gives way to drafts
  while (const std::optional<size_t> preempted = first_to_preempt(sequences)) {
    if (std::exchange(drafts_may_go, false)) {
      for (PassSequence& sequence : sequences) sequence.drafts = 0;
    } else {
      Sequence& sequence = *sequences_[*preempted];
      preempt(sequence);
      sequences[*preempted] = {.cached = 0, .pending = sequence.pending()};
    }
    pass_ = forming_.form(sequences, options_.pass_rows);
  }
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
