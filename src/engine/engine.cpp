#include "engine/engine.h"

#include <algorithm>
#include <new>

#include "base/bytes.h"
#include "base/memory_limit.h"
#include "engine/request_batching.h"

namespace klotski {

namespace {

int64_t most_tokens_of(const ModelDescription& model, const Request& request) {
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  return prompt + std::min(request.max_tokens, model.max_positions - prompt);
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

Engine::Engine(Pipeline& pipeline) : pipeline_(pipeline) {}

int64_t Engine::Sequence::most_tokens(const ModelDescription& model) const {
  return most_tokens_of(model, request);
}

Workload Engine::workload(const ModelDescription& model, const Request& request) {
  check(model, request);
  const int64_t tokens = most_tokens_of(model, request);
  const auto prompt = static_cast<int64_t>(request.prompt.size());
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
  const SequenceId id(next_id_++);
  std::vector<TokenId> prompt = request.prompt;
  Sampler sampler(request.sampling, request.prompt);
  auto sequence = std::make_unique<Sequence>(Sequence{.id = id,
                                                      .request = std::move(request),
                                                      .sampler = std::move(sampler),
                                                      .tokens = std::move(prompt),
                                                      .micro_batch = {},
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
// page. Those admitted together are spread so that micro-batches have about as many tokens.
void Engine::admit() {
  std::vector<MicroBatchLoad> loads(static_cast<size_t>(pipeline_.policy().group.micro_batches));
  for (const auto& sequence : sequences_) {
    if (!sequence->micro_batch) continue;
    loads[*sequence->micro_batch].tokens += static_cast<int64_t>(sequence->tokens.size());
    ++loads[*sequence->micro_batch].requests;
  }
  int64_t places = pipeline_.policy().group.sequences();
  for (const MicroBatchLoad& load : loads) places -= load.requests;

  std::vector<Sequence*> admitted;
  std::vector<int64_t> lengths;
  for (const auto& sequence : sequences_) {
    if (sequence->micro_batch) continue;
    if (places-- == 0) break;
    const int64_t tokens = sequence->most_tokens(pipeline_.description());
    if (!pipeline_.cache().place(sequence->kv, tokens, pipeline_.policy().group.micro_batch_rows))
      break;
    admitted.push_back(sequence.get());
    lengths.push_back(sequence->pending());
  }
  const RequestBatches batches = batch_requests(
      lengths, loads, {.requests_per_micro_batch = pipeline_.policy().group.micro_batch});
  for (size_t k = 0; k < batches.micro_batches.size(); ++k) {
    for (const size_t i : batches.micro_batches[k]) admitted[i]->micro_batch = k;
  }
}

// Every sequence contributes its tokens that are not in the cache yet: one while decoding, before
// that the rest of its prompt, or as much of it as the rows that the others leave. Micro-batches
// first .. last - 1 are formed as one.
Engine::Formed Engine::form(size_t first, size_t last) {
  Formed formed;
  int64_t decoding = 0;
  for (const auto& sequence : sequences_) {
    if (!sequence->micro_batch) continue;
    if (*sequence->micro_batch < first || *sequence->micro_batch >= last) continue;
    formed.members.push_back(sequence.get());
    if (sequence->pending() == 1) ++decoding;
  }
  int64_t prompt_rows = pipeline_.policy().group.micro_batch_rows - decoding;
  std::erase_if(formed.members, [&](Sequence* sequence) {
    const bool decodes = sequence->pending() == 1;
    const int64_t tokens = decodes ? 1 : std::min(sequence->pending(), prompt_rows);
    if (!decodes) prompt_rows -= tokens;
    if (tokens == 0) return true;
    if (!pipeline_.cache().reserve(sequence->kv, tokens)) {
      fail(ErrorKind::internal, "an admitted sequence found no KV page");
    }
    const bool complete = tokens == sequence->pending();
    formed.micro_batch.batch.append(
        sequence->kv.length(),
        std::span(sequence->tokens)
            .subspan(static_cast<size_t>(sequence->kv.length()), static_cast<size_t>(tokens)),
        static_cast<int64_t>(sequence->tokens.size()),
        complete ? LogitsOf::last_token : LogitsOf::none);
    formed.micro_batch.sequences.push_back(&sequence->kv);
    return false;
  });
  formed.micro_batch.only_most_likely =
      std::all_of(formed.members.begin(), formed.members.end(),
                  [](const Sequence* sequence) { return sequence->sampler.takes_most_likely(); });
  return formed;
}

std::vector<Engine::Formed> Engine::form_group() {
  const Policy& policy = pipeline_.policy();
  const bool all_decode = std::all_of(
      sequences_.begin(), sequences_.end(),
      [](const auto& sequence) { return !sequence->micro_batch || sequence->pending() == 1; });
  const auto merged = static_cast<size_t>(all_decode ? policy.merged_batches() : 1);
  std::vector<Formed> group;
  for (size_t k = 0; k < static_cast<size_t>(policy.group.micro_batches); k += merged) {
    Formed formed = form(k, k + merged);
    if (!formed.members.empty()) group.push_back(std::move(formed));
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
  progress.token = *token;
  sequence.tokens.push_back(*token);
  ++sequence.generated;
  const std::vector<TokenId>& stops = sequence.request.stop_tokens;
  const auto length = static_cast<int64_t>(sequence.tokens.size());
  if (std::find(stops.begin(), stops.end(), *token) != stops.end()) {
    progress.finish = Finish::stop_token;
  } else if (sequence.generated >= sequence.request.max_tokens ||
             length >= pipeline_.description().max_positions) {
    progress.finish = Finish::length;
  }
  return progress;
}

void Engine::retire(const std::vector<Progress>& progress) {
  for (const Progress& entry : progress) {
    if (entry.finish == Finish::not_yet) continue;
    std::erase_if(sequences_, [&](const std::unique_ptr<Sequence>& sequence) {
      if (sequence->id != entry.sequence) return false;
      pipeline_.cache().release(sequence->kv);
      return true;
    });
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

std::vector<Progress> Engine::run_group(std::vector<Formed>& group) {
  std::vector<MicroBatch> micro_batches;
  for (Formed& formed : group) micro_batches.push_back(std::move(formed.micro_batch));
  std::vector<Progress> progress;
  try {
    pipeline_.forward(micro_batches, [&](size_t k, Rows logits) {
      int64_t row = 0;
      for (size_t i = 0; i < group[k].members.size(); ++i) {
        if (micro_batches[k].batch.sequences[i].logits == LogitsOf::none) continue;
        Sequence& sequence = *group[k].members[i];
        const std::optional<TokenId> token =
            micro_batches[k].only_most_likely
                ? sequence.sampler.next_most_likely(
                      pipeline_.most_likely()[static_cast<size_t>(row)])
                : sequence.sampler.next({logits.row(row), static_cast<size_t>(logits.width)});
        progress.push_back(advance(sequence, token));
        ++row;
      }
    });
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
  for (size_t k = 0; k < group.size(); ++k) {
    for (size_t i = 0; i < group[k].members.size(); ++i) {
      pipeline_.cache().commit(group[k].members[i]->kv, micro_batches[k].batch.sequences[i].tokens);
    }
  }
  return progress;
}

std::vector<Progress> Engine::step() {
  admit();
  std::vector<Formed> group = form_group();
  std::vector<Progress> progress = run_group(group);
  retire(progress);
  return progress;
}

}  // namespace klotski
