#include "engine/pipeline.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/testing/models.h"

namespace klotski {
namespace {

void require(bool condition) {
  if (!condition) throw std::runtime_error("the test's own cache is too small");
}

struct Settings {
  RunLimits limits;
  std::optional<uint64_t> stress_seed;
  bool spill = false;
};

// Sequences with prompts and fixed continuations, so that logits are compared, not choices.
struct Texts {
  std::vector<std::vector<TokenId>> tokens;
  std::vector<int64_t> prompt;  // tokens computed in the first pass

  int64_t longest() const {
    size_t most = 0;
    for (const auto& text : tokens) most = std::max(most, text.size());
    return static_cast<int64_t>(most);
  }
};

Texts random_texts(std::mt19937_64& random, size_t count, int64_t vocabulary) {
  Texts texts;
  for (size_t i = 0; i < count; ++i) {
    const int64_t prompt = 1 + static_cast<int64_t>(random() % 20);
    texts.prompt.push_back(prompt);
    std::vector<TokenId>& tokens = texts.tokens.emplace_back(static_cast<size_t>(prompt) + random() % 4);
    for (TokenId& token : tokens) {
      token = static_cast<TokenId>(random() % static_cast<uint64_t>(vocabulary));
    }
  }
  return texts;
}

using Logits = std::vector<std::vector<float>>;  // of each text's passes, one after the other

// Rounds of passes over all texts: first the prompts, then a token each.
std::vector<Logits> run_resident(const TestModel& test, const Texts& texts) {
  const ResidentModel model = test.resident();
  PagedKvCache cache(test.description, {.memory_bytes = uint64_t{1} << 28});
  std::vector<Logits> results(texts.tokens.size());
  for (size_t i = 0; i < texts.tokens.size(); ++i) {
    KvSequence sequence;
    require(cache.place(sequence, texts.longest(), texts.longest()));
    std::vector<KvSequence*> members = {&sequence};
    for (size_t at = 0; at < texts.tokens[i].size();) {
      const size_t count = at == 0 ? static_cast<size_t>(texts.prompt[i]) : 1;
      require(cache.reserve(sequence, static_cast<int64_t>(count)));
      Batch batch;
      batch.append(static_cast<int64_t>(at), std::span(texts.tokens[i]).subspan(at, count),
                   static_cast<int64_t>(at + count), LogitsOf::last_token);
      Buffer logits = model.forward(batch, members, cache, reference_ops());
      results[i].emplace_back(logits.floats().begin(), logits.floats().end());
      cache.commit(sequence, static_cast<int64_t>(count));
      at += count;
    }
    cache.release(sequence);
  }
  return results;
}

std::vector<Logits> run_pipeline(const TestModel& test, const Texts& texts,
                                 const Settings& settings, std::mt19937_64& random) {
  PipelineOptions options;
  options.executor = {.stress_seed = settings.stress_seed,
                      .stress_delay = std::chrono::microseconds(20)};
  if (settings.spill) options.spill_folder = ::testing::TempDir();
  PreparedModel prepared = test.prepare(settings.limits,
                                        {.sequences = static_cast<int64_t>(texts.tokens.size()),
                                         .tokens_per_sequence = texts.longest(),
                                         .prompt_tokens = 20},
                                        options);
  Pipeline& pipeline = prepared.pipeline();
  const auto per_batch = static_cast<size_t>(pipeline.policy().micro_batch);
  const auto per_group = static_cast<size_t>(pipeline.policy().group_sequences());
  std::vector<Logits> results(texts.tokens.size());
  std::vector<size_t> order(texts.tokens.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  for (size_t first = 0; first < order.size();) {
    std::vector<KvSequence> sequences(per_group);
    std::vector<size_t> members;  // texts
    while (first + members.size() < order.size() && members.size() < per_group &&
           pipeline.cache().place(sequences[members.size()], texts.longest(),
                                  pipeline.policy().micro_batch_rows)) {
      members.push_back(order[first + members.size()]);
    }
    if (members.empty()) throw std::runtime_error("no room for a single text");
    while (true) {
      std::vector<MicroBatch> group((members.size() + per_batch - 1) / per_batch);
      std::vector<std::vector<size_t>> rows(group.size());
      for (size_t m = 0; m < members.size(); ++m) {
        const std::vector<TokenId>& text = texts.tokens[members[m]];
        const auto at = static_cast<size_t>(sequences[m].length());
        if (at == text.size()) continue;
        const size_t count = at == 0 ? static_cast<size_t>(texts.prompt[members[m]]) : 1;
        require(pipeline.cache().reserve(sequences[m], static_cast<int64_t>(count)));
        MicroBatch& batch = group[m / per_batch];
        batch.batch.append(static_cast<int64_t>(at), std::span(text).subspan(at, count),
                           static_cast<int64_t>(at + count), LogitsOf::last_token);
        batch.sequences.push_back(&sequences[m]);
        rows[m / per_batch].push_back(members[m]);
      }
      for (size_t k = group.size(); k-- > 0;) {
        if (!group[k].sequences.empty()) continue;
        group.erase(group.begin() + static_cast<std::ptrdiff_t>(k));
        rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(k));
      }
      if (group.empty()) break;
      pipeline.forward(group, [&](size_t k, Rows logits) {
        for (size_t r = 0; r < rows[k].size(); ++r) {
          const float* row = logits.row(static_cast<int64_t>(r));
          results[rows[k][r]].emplace_back(row, row + logits.width);
        }
      });
      for (MicroBatch& batch : group) {
        for (size_t i = 0; i < batch.sequences.size(); ++i) {
          pipeline.cache().commit(*batch.sequences[i], batch.batch.sequences[i].tokens);
        }
      }
    }
    for (KvSequence& sequence : sequences) pipeline.cache().release(sequence);
    first += members.size();
  }
  return results;
}

Settings random_settings(std::mt19937_64& random) {
  const auto between = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  Settings settings;
  settings.limits.strategy = static_cast<Strategy>(between(0, kStrategies - 1));
  settings.limits.expert_slots = between(1, 40);
  settings.limits.micro_batch = between(1, 4);
  settings.limits.micro_batches = between(1, 4);
  settings.limits.hot_experts = between(1, 4);
  settings.limits.eviction = std::array{"furthest", "lru", "lfu"}[random() % 3];
  if (random() % 2 == 0) settings.stress_seed = random();
  return settings;
}

class PipelineEquals : public ::testing::TestWithParam<const char*> {};

// The promise of the whole engine: whatever the strategy, the slots, the grouping, the eviction rule
// and the timing, the logits are bit for bit those of the plain loop with everything in memory.
TEST_P(PipelineEquals, TheResidentRunBitForBit) {
  const TestModel test(test_model(GetParam()));
  std::mt19937_64 random(17);
  for (int trial = 0; trial < 12; ++trial) {
    const Texts texts = random_texts(random, 1 + random() % 6, test.description.vocabulary);
    const std::vector<Logits> expected = run_resident(test, texts);
    const Settings settings = random_settings(random);
    SCOPED_TRACE(std::string(strategy_name(settings.limits.strategy)));
    ASSERT_EQ(run_pipeline(test, texts, settings, random), expected) << "trial " << trial;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PipelineEquals,
                         ::testing::Values("mixtral", "qwen2_moe", "qwen3_moe", "olmoe"));

}  // namespace
}  // namespace klotski
