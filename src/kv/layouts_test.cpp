// Caches of made-up layouts: one part only, parts of different widths, states without pages, and
// layers of all these kinds in one model; in memory, in a file and in a file used in its place.

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "base/error.h"
#include "kv/paged_cache.h"
#include "kv/testing.h"

namespace klotski {
namespace {

using testing::StageBuffer;

CacheLayouts mixed_layouts() {
  return CacheLayouts({
      {.parts = {{"latent", 5}}},
      {.parts = {{"keys", 6}, {"values", 4}}},
      {.parts = {}, .state_bytes = 100},
      {.parts = {{"keys", 2}, {"values", 3}, {"scales", 1}}, .state_bytes = 64},
  });
}
CacheLayouts states_only() {
  return CacheLayouts(std::vector<CacheLayout>{{.parts = {}, .state_bytes = 40}});
}
CacheLayouts latent_only() {
  return CacheLayouts(std::vector<CacheLayout>{{.parts = {{"latent", 7}}}});
}

// The byte that fills an element or a state: another one for each of 251 steps, and for neighbours.
int mark_of(int64_t number, int64_t layer, int64_t part, int64_t position) {
  return static_cast<int>((number * 97 + layer * 31 + part * 17 + position * 7) % 251);
}

enum class Where { memory, file, memory_as_file };

// A spill store that the program may use in its place.
class MemoryStore : public SpillStore {
 public:
  explicit MemoryStore(uint64_t bytes) : buffer_(bytes) {}
  void write(std::span<const SpillWrite> pieces) override {
    for (const SpillWrite& piece : pieces) {
      std::memcpy(memory() + piece.offset, piece.from.data(), piece.from.size());
    }
  }
  void read(std::span<const SpillRead> pieces) const override {
    for (const SpillRead& piece : pieces) {
      std::memcpy(piece.to.data(), memory() + piece.offset, piece.to.size());
    }
  }
  std::byte* memory() const override { return buffer_.bytes().data(); }

 private:
  StageBuffer buffer_;
};

KvLimits limits_for(Where where, DType type) {
  constexpr uint64_t kBytes = uint64_t{16} << 20;
  if (where == Where::memory) {
    return {.type = type, .memory_bytes = kBytes, .states = {.memory_bytes = kBytes}};
  }
  KvLimits limits{.type = type, .spill_bytes = kBytes, .states = {.spill_bytes = kBytes}};
  limits.spill_store = where == Where::file ? testing::file_store()
                                            : [](uint64_t bytes) -> std::unique_ptr<SpillStore> {
    return std::make_unique<MemoryStore>(bytes);
  };
  return limits;
}

// One sequence of a cache, with the marks that its committed steps left.
struct Marked {
  KvSequence sequence;
  std::vector<int64_t> numbers;  // by position: the step that wrote it
  int64_t last_step = 0;         // the step whose states are committed; 0: none
};

class LayoutsTest : public ::testing::TestWithParam<std::tuple<Where, DType>> {
 protected:
  Where where() const { return std::get<Where>(GetParam()); }
  DType type() const { return std::get<DType>(GetParam()); }

  // A stage of the sequence for every layer in turn, or none where it is not needed.
  template <typename Body>
  void for_layers(PagedKvCache& cache, Marked& marked, const CacheLayouts& layouts,
                  const Body& body) {
    KvSequence* const members[] = {&marked.sequence};
    const StageBuffer buffer(cache.stage_bytes(members));
    KvStage stage(buffer.bytes());
    for (size_t i = 0; i < layouts.layers().size(); ++i) {
      const LayerId layer(static_cast<int64_t>(i));
      const bool staged = where() == Where::file;
      if (staged) cache.load(stage, members, layer);
      const KvView view = cache.view(marked.sequence, layer, staged ? &stage : nullptr);
      body(layouts.layers()[i], view.cache(), static_cast<int64_t>(i));
      if (staged && marked.sequence.length() < reserved_end_) cache.store(stage);
    }
  }

  void* row_of(const LayerCache& cache, const CacheLayout& layout, size_t part, int64_t position) {
    const int64_t row = layout.parts[part].width * bytes_per_element(type());
    return cache.parts[part][static_cast<size_t>(position / kKvPageTokens)] +
           position % kKvPageTokens * row;
  }

  // Writes the step's marks, and checks that the committed ones are as they were.
  void step(PagedKvCache& cache, Marked& marked, const CacheLayouts& layouts, int64_t tokens,
            int64_t number) {
    const int64_t past = marked.sequence.length();
    reserved_end_ = past + tokens;
    for_layers(cache, marked, layouts,
               [&](const CacheLayout& layout, const LayerCache& found, int64_t layer) {
                 check_layer(marked, layout, found, layer);
                 for (size_t part = 0; part < layout.parts.size(); ++part) {
                   const auto bytes =
                       static_cast<size_t>(layout.parts[part].width * bytes_per_element(type()));
                   for (int64_t p = past; p < past + tokens; ++p) {
                     std::memset(row_of(found, layout, part, p),
                                 mark_of(number, layer, static_cast<int64_t>(part), p), bytes);
                   }
                 }
                 ASSERT_EQ(found.next_state.size(), layout.state_bytes);
                 if (layout.state_bytes > 0) {
                   std::memset(found.next_state.data(), mark_of(number, layer, 9, 0),
                               layout.state_bytes);
                 }
               });
  }

  void check(PagedKvCache& cache, Marked& marked, const CacheLayouts& layouts) {
    reserved_end_ = 0;
    for_layers(cache, marked, layouts,
               [&](const CacheLayout& layout, const LayerCache& found, int64_t layer) {
                 check_layer(marked, layout, found, layer);
               });
  }

  void check_layer(const Marked& marked, const CacheLayout& layout, const LayerCache& found,
                   int64_t layer) {
    ASSERT_EQ(found.parts.size(), layout.parts.size());
    for (size_t part = 0; part < layout.parts.size(); ++part) {
      const auto bytes = static_cast<size_t>(layout.parts[part].width * bytes_per_element(type()));
      for (size_t p = 0; p < marked.numbers.size(); ++p) {
        const auto position = static_cast<int64_t>(p);
        const std::vector<unsigned char> expected(
            bytes, static_cast<unsigned char>(
                       mark_of(marked.numbers[p], layer, static_cast<int64_t>(part), position)));
        ASSERT_EQ(std::memcmp(row_of(found, layout, part, position), expected.data(), bytes), 0)
            << "layer " << layer << ", part " << part << ", position " << p;
      }
    }
    if (layout.state_bytes == 0 || marked.last_step == 0) {
      ASSERT_TRUE(found.state.empty());
      return;
    }
    const std::vector<unsigned char> expected(
        layout.state_bytes, static_cast<unsigned char>(mark_of(marked.last_step, layer, 9, 0)));
    ASSERT_EQ(found.state.size(), layout.state_bytes);
    ASSERT_EQ(std::memcmp(found.state.data(), expected.data(), expected.size()), 0)
        << "the committed state of layer " << layer;
  }

  // Random sequences grow step by step, some steps are given up, and some sequences begin anew.
  void run_randomly(const CacheLayouts& layouts) {
    std::mt19937 random(21);
    PagedKvCache cache(layouts, limits_for(where(), type()));
    std::vector<Marked> sequences(4);
    std::vector<bool> placed(sequences.size(), false);
    for (int64_t number = 1; number < 150; ++number) {
      const size_t s = random() % sequences.size();
      Marked& marked = sequences[s];
      if (placed[s] && (random() % 12 == 0 || marked.sequence.length() > 70)) {
        cache.release(marked.sequence);
        marked = Marked();
        placed[s] = false;
      }
      placed[s] = placed[s] || cache.place(marked.sequence, 100, 30);
      ASSERT_TRUE(placed[s]);
      ASSERT_EQ(marked.sequence.spilled(), where() != Where::memory);
      const auto tokens = static_cast<int64_t>(1 + random() % 30);
      ASSERT_TRUE(cache.reserve(marked.sequence, tokens));
      ASSERT_NO_FATAL_FAILURE(step(cache, marked, layouts, tokens, number));
      if (random() % 4 != 0) {
        cache.commit(marked.sequence, tokens);
        marked.numbers.insert(marked.numbers.end(), static_cast<size_t>(tokens), number);
        marked.last_step = number;
      }
      for (Marked& other : sequences) ASSERT_NO_FATAL_FAILURE(check(cache, other, layouts));
    }
    for (Marked& marked : sequences) cache.release(marked.sequence);
    EXPECT_EQ(cache.pages_in_use() + cache.spilled_pages(), 0);
  }

 private:
  int64_t reserved_end_ = 0;  // positions of the sequence after the step at hand; 0: there is none
};
INSTANTIATE_TEST_SUITE_P(Everywhere, LayoutsTest,
                         ::testing::Combine(::testing::Values(Where::memory, Where::file,
                                                              Where::memory_as_file),
                                            testing::both_types()));

TEST_P(LayoutsTest, LayersOfDifferentKindsKeepTheirOwn) { run_randomly(mixed_layouts()); }
TEST_P(LayoutsTest, AStateIsAllThatIsKept) { run_randomly(states_only()); }
TEST_P(LayoutsTest, OnePartIsAllThatIsKept) { run_randomly(latent_only()); }

TEST(Layouts, PagesTakeWholeLinesOfTheirParts) {
  const CacheLayouts layouts = mixed_layouts();
  // 16 positions of 5, 6 + 4, no and 2 + 3 + 1 numbers; 5 numbers of BF16 are two lines and a half.
  EXPECT_EQ(PagedKvCache::page_bytes(layouts, DType::F32), 16u * 4 * (5 + 10 + 6));
  EXPECT_EQ(PagedKvCache::page_bytes(layouts, DType::BF16), 16u * 2 * (6 + 10 + 6));
  EXPECT_EQ(PagedKvCache::spilled_page_bytes(layouts, DType::F32),
            (std::vector<uint64_t>{kDirectAlignment, kDirectAlignment, 0, kDirectAlignment}));
  EXPECT_EQ(SequenceStates::sequence_bytes(layouts), 2u * (128 + 64));
  EXPECT_EQ(SequenceStates::sequence_bytes(latent_only()), 0u);
}

TEST(Layouts, ASequenceNeedsRoomForItsStates) {
  const CacheLayouts layouts = mixed_layouts();
  const uint64_t page = PagedKvCache::page_bytes(layouts, DType::F32);
  PagedKvCache cache(layouts,
                     {.type = DType::F32,
                      .memory_bytes = 10 * page,
                      .states = {.memory_bytes = 2 * SequenceStates::sequence_bytes(layouts)}});
  std::vector<KvSequence> s(3);
  EXPECT_TRUE(cache.place(s[0], 20, 20));
  EXPECT_THROW((void)cache.place(s[0], 20, 20), Error) << "placed twice";
  EXPECT_TRUE(cache.reserve(s[1], 20));
  EXPECT_FALSE(cache.reserve(s[2], 20)) << "there is a page for it, but no state";
  EXPECT_FALSE(cache.place(s[2], 20, 20));
  cache.release(s[0]);
  EXPECT_FALSE(cache.reserve(s[2], 9 * 16)) << "there is a state for it, but no page";
  EXPECT_TRUE(cache.place(s[0], 20, 20)) << "a refused reservation takes no state";
}

TEST(Layouts, PositionsTakeNothingWhereOnlyStatesAreKept) {
  const CacheLayouts layouts = states_only();
  PagedKvCache cache(layouts, {.type = DType::F32, .states = {.memory_bytes = 128}});
  EXPECT_EQ(cache.pages_needed(1000000, 10), 0);
  KvSequence sequence;
  ASSERT_TRUE(cache.place(sequence, 1000000, 1000000));
  ASSERT_TRUE(cache.reserve(sequence, 1000000));
  EXPECT_EQ(cache.pages_in_use(), 0);
  EXPECT_EQ(cache.view(sequence, LayerId(0)).cache().next_state.size(), 40u);
}

TEST(Layouts, AStageHoldsTheLargestLayerWithItsStates) {
  const CacheLayouts layouts = mixed_layouts();
  PagedKvCache cache(layouts, limits_for(Where::file, DType::F32));
  KvSequence sequence;
  ASSERT_TRUE(cache.place(sequence, 40, 40) && cache.reserve(sequence, 40));
  KvSequence* const members[] = {&sequence};
  EXPECT_EQ(cache.stage_bytes(members), (3 + 2) * kDirectAlignment);
}

}  // namespace
}  // namespace klotski
