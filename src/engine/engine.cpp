#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "base/bytes.h"
#include "base/keep_for_ever.h"
#include "base/memory_limit.h"
#include "engine/prompt.h"
#include "model/rope.h"

namespace klotski {

namespace {

using Clock = std::chrono::steady_clock;

// All tokens that are known before the first one is generated.
std::vector<TokenId> known_tokens(const ModelDescription& model, const Request& request) {
  std::vector<TokenId> tokens = request.prompt;
  if (!model.encoder) return tokens;
  tokens.push_back(model.encoder->start_token);
  tokens.insert(tokens.end(), request.decoder_prompt.begin(), request.decoder_prompt.end());
  return tokens;
}

// Positions of a sequence: those of the encoder's input besides the decoder's.
int64_t most_positions(const ModelDescription& model, const Request& request) {
  return model.max_positions + (model.encoder ? std::ssize(request.prompt) : 0);
}

int64_t most_tokens_of(const ModelDescription& model, const Request& request) {
  const int64_t known = std::ssize(known_tokens(model, request));
  return known + std::min(request.max_tokens, most_positions(model, request) - known);
}

void check(const ModelDescription& model, const Request& request) {
  const int64_t prompt = std::ssize(request.prompt);
  if (prompt == 0) fail(ErrorKind::usage, "the prompt has no tokens; give at least one");
  const auto must_fit = [&](std::string_view what, int64_t tokens, int64_t most) {
    if (tokens <= most) return;
    fail(ErrorKind::usage, "the {} has {} tokens, but the model has {} positions", what, tokens,
         model.max_positions);
  };
  const int64_t known = std::ssize(known_tokens(model, request));
  if (model.encoder) {
    must_fit("prompt", prompt, model.max_positions);
    must_fit("decoder's prompt", known - prompt, model.max_positions - 1);
  } else {
    must_fit("prompt", known, model.max_positions - 1);
  }
  if (request.max_tokens < 1) fail(ErrorKind::usage, "max tokens: expected at least 1");
  check_tokens(model, request.prompt, "prompt");
  check_tokens(model, request.decoder_prompt, "decoder prompt");
  check_tokens(model, request.given_tokens, "continuation");
}

// Drafted tokens that a pass may verify for a sequence: none where another processor attends to
// rows that decode.
int64_t drafts_of(const Policy& policy) {
  return policy.division.attends_elsewhere() ? 0 : policy.group.draft_tokens;
}

}  // namespace

Engine::Engine(Pipeline& pipeline, const EngineOptions& options)
    : pipeline_(pipeline),
      options_(options),
      forming_(pipeline.policy()),
      draft_budget_(drafts_of(pipeline.policy()), pipeline.policy().group.decode_rows()) {
  const ModelDescription& model = pipeline.description();
  // Every position of an encoder depends on all of its input, and a decoder's on the encoder's.
  if (model.encoder) options_.prefix_cache = false;
  // Keys depend on the length that their sequence had when they were computed. A sequence of
  // another length, or the same sequence computed anew, would have other keys.
  if (frequencies_depend_on_length(model.rope)) {
    options_.prefix_cache = false;
    options_.booking = KvBooking::whole;
  }
}

int64_t Engine::Sequence::most_tokens(const ModelDescription& model) const {
  return most_tokens_of(model, request);
}

Workload Engine::workload(const ModelDescription& model, const Request& request) {
  check(model, request);
  const int64_t tokens = most_tokens_of(model, request);
  const int64_t prompt = std::ssize(known_tokens(model, request));
  return {.sequences = 1,
          .tokens_per_sequence = tokens,
          .prompt_tokens = prompt,
          .generated_tokens = std::max<int64_t>(1, tokens - prompt)};
}

SequenceId Engine::submit(Request request) {
  const ModelDescription& model = pipeline_.description();
  check(model, request);
  const int64_t tokens = most_tokens_of(model, request);
  const PagedKvCache& cache = pipeline_.cache();
  const int64_t pages = cache.pages_needed(tokens, pipeline_.policy().group.micro_batch_rows);
  const Policy& policy = pipeline_.policy();
  const int64_t most_pages =
      policy.layout.kv_stages > 0
          ? std::min(policy.layout.kv_sequence_pages,
                     std::max(cache.capacity_pages(), cache.spill_capacity_pages()))
          : cache.capacity_pages();
  if (pages > most_pages) {
    fail(ErrorKind::does_not_fit,
         "the request needs {} of KV cache, the limit is {}; ask for fewer tokens or more memory",
         format_bytes(static_cast<uint64_t>(pages) * cache.page_bytes()),
         format_bytes(static_cast<uint64_t>(most_pages) * cache.page_bytes()));
  }
  const int64_t encoded = model.encoder ? std::ssize(request.prompt) : 0;
  if (encoded > policy.group.micro_batch_rows) {
    fail(ErrorKind::does_not_fit,
         "the encoder takes an input in one piece: this one has {} tokens, the plan has room for "
         "{}; give a shorter one or more memory",
         encoded, policy.group.micro_batch_rows);
  }
  const SequenceId id(next_id_++);
  std::vector<TokenId> tokens_so_far = known_tokens(model, request);
  Sampler sampler(request.sampling, std::span(tokens_so_far).subspan(static_cast<size_t>(encoded)));
  auto sequence = std::make_unique<Sequence>(Sequence{.id = id,
                                                      .request = std::move(request),
                                                      .sampler = std::move(sampler),
                                                      .tokens = std::move(tokens_so_far),
                                                      .encoded = encoded,
                                                      .micro_batch = {},
                                                      .kv = {}});
  pipeline_.cache().number(sequence->kv);
  sequences_.push_back(std::move(sequence));
  room_or_requests_are_new_ = true;
  return id;
}

void Engine::cancel(SequenceId id) { retire({{.sequence = id, .finish = Finish::length}}); }

int64_t Engine::running() const {
  return std::count_if(sequences_.begin(), sequences_.end(),
                       [](const auto& sequence) { return sequence->micro_batch.has_value(); });
}

EngineCounters Engine::counters() const {
  return {.preemptions = preemptions_,
          .prefix = pipeline_.cache().prefix_counters(),
          .drafts = pipeline_.drafts()};
}

int64_t Engine::pending_tokens() const {
  int64_t pending = 0;
  for (const auto& sequence : sequences_) pending += sequence->pending();
  return pending;
}

// The micro-batches of the formed pass: its sequences contribute their tokens that are not in the
// cache yet, or some of them.
std::vector<Engine::Formed> Engine::form_group(KvTransaction& step) {
  std::vector<Formed> group(pass_.micro_batches);
  for (Formed& formed : group) formed.micro_batch.only_most_likely = true;
  for (const PassRows& rows : pass_.rows) {
    Sequence& sequence = *sequences_[rows.sequence];
    Formed& formed = group[rows.micro_batch];
    step.reserve(sequence.kv, rows.tokens);
    formed.members.push_back(&sequence);
    sequence.drafts.resize(static_cast<size_t>(rows.drafts));
    const auto first = sequence.tokens.begin() + sequence.kv.length();
    std::vector<TokenId> tokens(first, first + (rows.tokens - rows.drafts));
    tokens.insert(tokens.end(), sequence.drafts.begin(), sequence.drafts.end());
    const LogitsOf wanted = rows.drafts > 0 ? LogitsOf::every_token
                            : rows.complete ? LogitsOf::last_token
                                            : LogitsOf::none;
    Batch& batch = formed.micro_batch.batch;
    batch.append(sequence.kv.length(), tokens, std::ssize(sequence.tokens) + rows.drafts, wanted,
                 sequence.encoded);
    batch.sequences.back().drafts = rows.drafts;
    formed.micro_batch.sequences.push_back(&sequence.kv);
    formed.micro_batch.only_most_likely &=
        sequence.sampler.takes_most_likely() && !sequence.request.logprobs;
  }
  return group;
}

Progress Engine::advance(Sequence& sequence, std::optional<TokenId> token) const {
  Progress progress{.sequence = sequence.id};
  if (!token) {
    progress.finish = Finish::failed;
    progress.error_kind = ErrorKind::bad_model;
    progress.error = fmt::format(
        "the model's logits hold a NaN or an infinity after {} tokens; its weights are broken",
        sequence.generated);
    return progress;
  }
  const std::vector<TokenId>& given = sequence.request.given_tokens;
  if (sequence.generated < std::ssize(given)) {
    token = given[static_cast<size_t>(sequence.generated)];
  }
  progress.token = *token;
  sequence.tokens.push_back(*token);
  ++sequence.generated;
  const std::vector<TokenId>& stops = sequence.request.stop_tokens;
  const auto length = static_cast<int64_t>(sequence.tokens.size());
  if (std::find(stops.begin(), stops.end(), *token) != stops.end()) {
    progress.finish = Finish::stop_token;
  } else if (sequence.generated >= sequence.request.max_tokens ||
             length >= most_positions(pipeline_.description(), sequence.request)) {
    progress.finish = Finish::length;
  }
  return progress;
}

Progress Engine::sample(Sequence& sequence, std::span<const float> logits) const {
  Progress progress = advance(sequence, sequence.sampler.next(logits));
  const std::optional<int64_t>& most = sequence.request.logprobs;
  if (most && progress.finish != Finish::failed) {
    progress.logprobs = logprobs_of(logits, progress.token, *most);
  }
  return progress;
}

void Engine::retire(const std::vector<Progress>& progress) {
  for (const Progress& entry : progress) {
    if (entry.finish == Finish::not_yet) continue;
    const auto ended =
        std::find_if(sequences_.begin(), sequences_.end(),
                     [&](const auto& sequence) { return sequence->id == entry.sequence; });
    if (ended == sequences_.end()) continue;
    pipeline_.end_sequence((*ended)->kv);
    pipeline_.cache().release((*ended)->kv);
    if (pipeline_.cache().abandoned()) keep_for_ever(std::move(*ended));
    room_or_requests_are_new_ = true;
    sequences_.erase(ended);
  }
}

std::vector<Progress> Engine::all_failed(const std::vector<Formed>& group, const Error& error) {
  std::vector<Progress> progress;
  for (const Formed& formed : group) {
    for (const Sequence* member : formed.members) {
      progress.push_back({.sequence = member->id,
                          .finish = Finish::failed,
                          .error = error.what(),
                          .error_kind = error.kind()});
    }
  }
  return progress;
}

void Engine::compute(std::vector<Formed>& group, std::vector<Progress>& progress) {
  std::vector<MicroBatch> micro_batches;
  for (Formed& formed : group) micro_batches.push_back(std::move(formed.micro_batch));
  pipeline_.forward(micro_batches, [&](size_t k, Rows logits) {
    int64_t row = 0;
    for (size_t i = 0; i < group[k].members.size(); ++i) {
      const BatchSequence& rows = micro_batches[k].batch.sequences[i];
      if (rows.logits == LogitsOf::none) continue;
      Sequence& sequence = *group[k].members[i];
      const auto next = [&](int64_t drafted) {
        const int64_t at = row + drafted;
        return micro_batches[k].only_most_likely
                   ? advance(sequence, sequence.sampler.next_most_likely(
                                           pipeline_.most_likely()[static_cast<size_t>(at)]))
                   : sample(sequence, {logits.row(at), static_cast<size_t>(logits.width)});
      };
      take_tokens(sequence, next, progress);
      row += 1 + rows.drafts;
    }
  });
}

void Engine::publish_prefixes(const std::vector<Formed>& group) {
  if (!options_.prefix_cache) return;
  for (const Formed& formed : group) {
    for (Sequence* member : formed.members) pipeline_.cache().publish(member->kv, member->tokens);
  }
}

std::vector<Progress> Engine::run_pass() {
  KvTransaction step(pipeline_.cache());
  std::vector<Formed> group = form_group(step);
  std::vector<Progress> progress;
  try {
    compute(group, progress);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::device_lost) {
      fail(ErrorKind::device_lost,
           "{}; {} unfinished sequences are lost, what was written before is "
           "complete",
           error.what(), sequences_.size());
    }
    return all_failed(group, error);
  } catch (const std::bad_alloc&) {
    return all_failed(group, Error(ErrorKind::does_not_fit,
                                   "out of memory while computing: " + describe_shortage(1)));
  }
  keep_accepted(group, step);
  step.commit();
  publish_prefixes(group);
  return progress;
}

std::vector<Progress> Engine::step() {
  if (idle()) return {};
  std::vector<PassSequence> sequences = admit();
  propose_drafts(sequences);
  make_room(sequences);
  if (pass_.rows.empty()) return {};  // the only one was preempted, to be placed elsewhere
  predict_experts(sequences);
  const Clock::time_point start = Clock::now();
  std::vector<Progress> progress = run_pass();
  const bool failed = !progress.empty() && progress.back().finish == Finish::failed;
  if (!failed) count_pass(progress, std::chrono::duration<double>(Clock::now() - start).count());
  retire(progress);
  return progress;
}

}  // namespace klotski
