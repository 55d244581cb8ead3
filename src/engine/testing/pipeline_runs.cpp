#include "engine/testing/pipeline_runs.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "kv/transaction.h"

namespace klotski {

namespace {

void require(bool condition, const char* otherwise) {
  if (!condition) throw std::runtime_error(otherwise);
}

// Texts that run together, from place to release.
class RunningTexts {
 public:
  RunningTexts(Pipeline& pipeline, const Texts& texts, std::span<const size_t> waiting)
      : pipeline_(pipeline),
        texts_(texts),
        per_batch_(pipeline.policy().group.micro_batch),
        sequences_(pipeline.cache()) {
    const auto most =
        std::min(static_cast<size_t>(pipeline.policy().group.sequences()), waiting.size());
    while (members_.size() < most &&
           sequences_.place(texts.longest(), pipeline.policy().group.micro_batch_rows)) {
      members_.push_back(waiting[members_.size()]);
    }
    require(!members_.empty(), "no room for a single text");
  }
  size_t size() const { return members_.size(); }
  int64_t spilled() const {
    int64_t count = 0;
    for (size_t i = 0; i < sequences_.size(); ++i) count += sequences_[i].spilled() ? 1 : 0;
    return count;
  }

  // One pass; false when every text is through.
  bool pass(std::vector<Logits>& results) {
    KvTransaction step(pipeline_.cache());
    form(step);
    if (group_.empty()) return false;
    pipeline_.forward(group_, [&](size_t k, Rows logits) {
      for (size_t r = 0; r < rows_[k].size(); ++r) {
        const float* row = logits.row(static_cast<int64_t>(r));
        results[rows_[k][r]].emplace_back(row, row + logits.width);
      }
    });
    step.commit();
    return true;
  }

 private:
  void form(KvTransaction& step) {
    group_.clear();
    rows_.clear();
    for (size_t m = 0; m < members_.size(); ++m) {
      if (m % static_cast<size_t>(per_batch_) == 0) start_micro_batch();
      append(step, m);
    }
    start_micro_batch();
    group_.pop_back();
    rows_.pop_back();
  }
  // Starts the next micro-batch, unless the last one stayed empty.
  void start_micro_batch() {
    if (!group_.empty() && group_.back().sequences.empty()) return;
    group_.emplace_back();
    rows_.emplace_back();
  }
  void append(KvTransaction& step, size_t member) {
    const size_t text = members_[member];
    const std::vector<TokenId>& tokens = texts_.tokens[text];
    KvSequence& sequence = sequences_[member];
    const auto at = static_cast<size_t>(sequence.length());
    if (at == tokens.size()) return;
    const size_t count = at == 0 ? static_cast<size_t>(texts_.prompt[text]) : 1;
    step.reserve(sequence, static_cast<int64_t>(count));
    group_.back().batch.append(static_cast<int64_t>(at), std::span(tokens).subspan(at, count),
                               static_cast<int64_t>(at + count), LogitsOf::last_token);
    group_.back().sequences.push_back(&sequence);
    rows_.back().push_back(text);
  }

  Pipeline& pipeline_;
  const Texts& texts_;
  int64_t per_batch_;
  PlacedSequences sequences_;
  std::vector<size_t> members_;  // texts
  std::vector<MicroBatch> group_;
  std::vector<std::vector<size_t>> rows_;  // texts whose logits a micro-batch gives
};

}  // namespace

int64_t Texts::longest() const {
  size_t most = 0;
  for (const auto& text : tokens) most = std::max(most, text.size());
  return static_cast<int64_t>(most);
}

Workload Texts::workload() const {
  return {.sequences = static_cast<int64_t>(tokens.size()),
          .tokens_per_sequence = longest(),
          .prompt_tokens = *std::max_element(prompt.begin(), prompt.end())};
}

Texts random_texts(std::mt19937_64& random, size_t count, int64_t vocabulary, int64_t most_prompt) {
  Texts texts;
  for (size_t i = 0; i < count; ++i) {
    texts.prompt.push_back(1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most_prompt)));
    std::vector<TokenId>& tokens =
        texts.tokens.emplace_back(static_cast<size_t>(texts.prompt.back()) + random() % 4);
    for (TokenId& token : tokens) {
      token = static_cast<TokenId>(random() % static_cast<uint64_t>(vocabulary));
    }
  }
  return texts;
}

std::vector<Logits> run_resident(const TestModel& test, const Texts& texts, Precision precision,
                                 const Processor& ops) {
  const ResidentModel model = test.resident();
  PagedKvCache cache(test.description, {.type = kv_type(precision),
                                        .memory_bytes = uint64_t{1} << 28,
                                        .states = {.memory_bytes = uint64_t{1} << 28}});
  std::vector<Logits> results(texts.tokens.size());
  for (size_t i = 0; i < texts.tokens.size(); ++i) {
    PlacedSequences placed(cache);
    require(placed.place(texts.longest(), texts.longest()), "the test's cache is too small");
    std::vector<KvSequence*> members = {&placed[0]};
    for (size_t at = 0; at < texts.tokens[i].size();) {
      const size_t count = at == 0 ? static_cast<size_t>(texts.prompt[i]) : 1;
      KvTransaction step(cache);
      step.reserve(placed[0], static_cast<int64_t>(count));
      Batch batch;
      batch.append(static_cast<int64_t>(at), std::span(texts.tokens[i]).subspan(at, count),
                   static_cast<int64_t>(at + count), LogitsOf::last_token);
      Buffer logits = model.forward(batch, members, cache, ops, precision);
      results[i].emplace_back(logits.floats().begin(), logits.floats().end());
      step.commit();
      at += count;
    }
  }
  return results;
}

std::vector<Logits> run_pipeline(Pipeline& pipeline, const Texts& texts, std::mt19937_64& random,
                                 int64_t* spilled) {
  std::vector<Logits> results(texts.tokens.size());
  std::vector<size_t> order(texts.tokens.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  for (size_t first = 0; first < order.size();) {
    RunningTexts running(pipeline, texts, std::span(order).subspan(first));
    if (spilled) *spilled += running.spilled();
    while (running.pass(results)) {
    }
    first += running.size();
  }
  return results;
}

}  // namespace klotski
