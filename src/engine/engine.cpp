#include "engine/engine.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"

namespace klotski {

namespace {

int64_t pages_needed(const ModelDescription& model, const Request& request) {
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t generated = std::min(request.max_tokens, model.max_positions - prompt);
  return PagedKvCache::pages_for(prompt + generated);
}

void check(const ModelDescription& model, const Request& request) {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt == 0) fail(ErrorKind::usage, "the prompt has no tokens; give at least one");
  if (prompt >= model.max_positions) {
    fail(ErrorKind::usage, "the prompt has {} tokens, but the model has {} positions", prompt,
         model.max_positions);
  }
  if (request.max_tokens < 1) fail(ErrorKind::usage, "max tokens: expected at least 1");
  for (const TokenId token : request.prompt) {
    if (token < 0 || token >= model.vocabulary) {
      fail(ErrorKind::usage, "token id {} of the prompt is outside the vocabulary of {}", token,
           model.vocabulary);
    }
  }
}

}  // namespace

Engine::Engine(const ResidentModel& model, const Ops& ops, const EngineLimits& limits)
    : model_(model),
      ops_(ops),
      limits_(limits),
      cache_(model.description(), {.memory_bytes = limits.kv_bytes}) {}

uint64_t Engine::kv_bytes(const ModelDescription& model, const Request& request) {
  check(model, request);
  return static_cast<uint64_t>(pages_needed(model, request)) * PagedKvCache::page_bytes(model);
}

SequenceId Engine::submit(Request request) {
  check(model_.description(), request);
  const int64_t pages = pages_needed(model_.description(), request);
  if (pages > cache_.capacity_pages()) {
    fail(ErrorKind::does_not_fit,
         "the request needs {} of KV cache, the limit is {}; ask for fewer tokens or more memory",
         format_bytes(static_cast<uint64_t>(pages) * cache_.page_bytes()),
         format_bytes(limits_.kv_bytes));
  }
  const SequenceId id(next_id_++);
  std::vector<TokenId> tokens = request.prompt;
  Sampler sampler(request.sampling, request.prompt);
  auto sequence = std::make_unique<Sequence>(Sequence{.id = id,
                                                      .request = std::move(request),
                                                      .sampler = std::move(sampler),
                                                      .tokens = std::move(tokens),
                                                      .promised_pages = pages,
                                                      .kv = {}});
  sequences_.push_back(std::move(sequence));
  return id;
}

void Engine::cancel(SequenceId id) { retire({{.sequence = id, .finish = Finish::length}}); }

int64_t Engine::pending_tokens() const {
  int64_t pending = 0;
  for (const auto& sequence : sequences_) pending += sequence->pending();
  return pending;
}

// In order of arrival, as long as everything promised fits: an admitted sequence never lacks a
// page.
void Engine::admit() {
  for (const auto& sequence : sequences_) {
    if (sequence->admitted) continue;
    if (promised_pages_ + sequence->promised_pages > cache_.capacity_pages()) return;
    promised_pages_ += sequence->promised_pages;
    sequence->admitted = true;
  }
}

// Decoding sequences first, each with one token, those that waited longest in front; then prompts,
// the oldest first.
std::vector<Engine::Sequence*> Engine::in_turn() const {
  std::vector<Sequence*> ready;
  for (const auto& sequence : sequences_) {
    if (sequence->admitted) ready.push_back(sequence.get());
  }
  const auto prompts =
      std::stable_partition(ready.begin(), ready.end(),
                            [](const Sequence* sequence) { return sequence->pending() == 1; });
  std::stable_sort(ready.begin(), prompts, [](const Sequence* a, const Sequence* b) {
    return a->last_step < b->last_step;
  });
  return ready;
}

// Every admitted sequence contributes its tokens that are not in the cache yet: one while decoding,
// the rest of its prompt before. A prompt takes what decoding leaves, but at least a quarter of the
// rows, so that neither holds up the other for ever.
Batch Engine::next_batch(std::vector<Sequence*>& members) {
  const std::vector<Sequence*> ready = in_turn();
  const bool prompts_wait = !ready.empty() && ready.back()->pending() > 1;
  const int64_t decode_rows =
      limits_.rows_per_step - (prompts_wait ? std::max<int64_t>(limits_.rows_per_step / 4, 1) : 0);
  Batch batch;
  for (Sequence* sequence : ready) {
    const bool decodes = sequence->pending() == 1;
    const int64_t room = (decodes ? decode_rows : limits_.rows_per_step) - batch.rows();
    const int64_t tokens = std::min(sequence->pending(), room);
    if (tokens <= 0) continue;
    if (!cache_.reserve(sequence->kv, tokens)) {
      fail(ErrorKind::internal, "an admitted sequence found no KV page");
    }
    const bool complete = tokens == sequence->pending();
    batch.append(
        sequence->kv.length(),
        std::span(sequence->tokens)
            .subspan(static_cast<size_t>(sequence->kv.length()), static_cast<size_t>(tokens)),
        static_cast<int64_t>(sequence->tokens.size()),
        complete ? LogitsOf::last_token : LogitsOf::none);
    sequence->last_step = steps_;
    members.push_back(sequence);
  }
  return batch;
}

Progress Engine::advance(Sequence& sequence, std::span<const float> logits) const {
  Progress progress{.sequence = sequence.id};
  const std::optional<TokenId> token = sequence.sampler.next(logits);
  if (!token) {
    progress.finish = Finish::failed;
    return progress;
  }
  progress.token = *token;
  sequence.tokens.push_back(*token);
  ++sequence.generated;
  const std::vector<TokenId>& stops = sequence.request.stop_tokens;
  const auto length = static_cast<int64_t>(sequence.tokens.size());
  if (std::find(stops.begin(), stops.end(), *token) != stops.end()) {
    progress.finish = Finish::stop_token;
  } else if (sequence.generated >= sequence.request.max_tokens ||
             length >= model_.description().max_positions) {
    progress.finish = Finish::length;
  }
  return progress;
}

void Engine::retire(const std::vector<Progress>& progress) {
  for (const Progress& entry : progress) {
    if (entry.finish == Finish::not_yet) continue;
    std::erase_if(sequences_, [&](const std::unique_ptr<Sequence>& sequence) {
      if (sequence->id != entry.sequence) return false;
      if (sequence->admitted) promised_pages_ -= sequence->promised_pages;
      cache_.release(sequence->kv);
      return true;
    });
  }
}

std::vector<Progress> Engine::step() {
  ++steps_;
  admit();
  std::vector<Sequence*> members;
  const Batch batch = next_batch(members);
  std::vector<KvSequence*> kv;
  for (Sequence* member : members) kv.push_back(&member->kv);
  Buffer logits = model_.forward(batch, kv, cache_, ops_);

  std::vector<Progress> progress;
  int64_t row = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    cache_.commit(members[i]->kv, batch.sequences[i].tokens);
    if (batch.sequences[i].logits == LogitsOf::none) continue;
    progress.push_back(advance(
        *members[i],
        std::span(logits.rows().row(row++), static_cast<size_t>(model_.description().vocabulary))));
  }
  retire(progress);
  return progress;
}

}  // namespace klotski
