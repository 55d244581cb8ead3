// A cache that spills against a cache that has memory for everything: equal numbers, bit for bit.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include "base/error.h"
#include "kv/paged_cache.h"
#include "kv/testing.h"

namespace klotski {
namespace {

using testing::holds_marks;
using testing::kSpillPageBytes;
using testing::StageBuffer;
using testing::two_layers;
using testing::write_marks;

const ModelDescription model = two_layers();
const auto every_page = [](int64_t) { return true; };

KvLimits limits_of(DType type, uint64_t memory_pages, uint64_t spill_pages,
                   SpillCalls& calls = SpillCalls::system()) {
  return {.type = type,
          .memory_bytes = memory_pages * PagedKvCache::page_bytes(model, type),
          .spill_bytes = spill_pages * kSpillPageBytes,
          .spill_store = testing::file_store(::testing::TempDir(), calls)};
}

constexpr int64_t kWrong = 5000;  // added to the number of a sequence whose step is given up

// One step of sequences with the given numbers and new tokens, or the first layer of one that is
// given up after it stored something else.
void run_layers(PagedKvCache& cache, std::span<KvSequence* const> members,
                std::span<const int64_t> numbers, std::span<const int64_t> tokens,
                bool given_up = false) {
  const StageBuffer buffer(cache.stage_bytes(members));
  KvStage stage(buffer.bytes());
  for (int32_t layer = 0; layer < (given_up ? 1 : 2); ++layer) {
    cache.load(stage, members, LayerId(layer));
    for (size_t i = 0; i < members.size(); ++i) {
      write_marks(cache, model, numbers[i], *members[i], LayerId(layer), tokens[i], &stage);
      const KvView view = cache.view(*members[i], LayerId(layer), &stage);
      ASSERT_TRUE(holds_marks(keys_and_values(view.cache()), model, numbers[i],
                              members[i]->length() + tokens[i], LayerId(layer), every_page));
      if (given_up) {
        write_marks(cache, model, numbers[i] + kWrong, *members[i], LayerId(layer), tokens[i],
                    &stage);
      }
    }
    cache.store(stage);
  }
}

// The committed positions, read back through a stage of their own.
bool intact(PagedKvCache& cache, KvSequence& sequence, int64_t number) {
  KvSequence* const members[] = {&sequence};
  const StageBuffer buffer(cache.stage_bytes(members));
  KvStage stage(buffer.bytes());
  for (int32_t layer = 0; layer < 2; ++layer) {
    cache.load(stage, members, LayerId(layer));
    const KvView view = cache.view(sequence, LayerId(layer), &stage);
    if (!holds_marks(keys_and_values(view.cache()), model, number, sequence.length(),
                     LayerId(layer), every_page)) {
      return false;
    }
  }
  return true;
}

class SpilledCache : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, SpilledCache, testing::both_types(), testing::type_name);

TEST_P(SpilledCache, MemoryFirstThenTheFileThenNothing) {
  PagedKvCache cache(model, limits_of(GetParam(), 2, 3));
  EXPECT_EQ(cache.capacity_pages(), 2);
  EXPECT_EQ(cache.spill_capacity_pages(), 3);
  std::vector<KvSequence> s(4);
  EXPECT_TRUE(cache.place(s[0], 20, 20));
  EXPECT_FALSE(s[0].spilled());
  EXPECT_TRUE(cache.place(s[1], 33, 1));
  EXPECT_TRUE(s[1].spilled());
  EXPECT_FALSE(cache.place(s[2], 1, 1));
  EXPECT_EQ(cache.spilled_pages(), 3);
  cache.release(s[0]);
  EXPECT_TRUE(cache.place(s[2], 1, 1));
  EXPECT_FALSE(s[2].spilled()) << "memory is preferred again";
  cache.release(s[1]);
  EXPECT_EQ(cache.spilled_pages(), 0);
  EXPECT_FALSE(s[1].spilled());
}

TEST_P(SpilledCache, RandomStepsAreWhatMemoryWouldHold) {
  std::mt19937 random(11);
  PagedKvCache cache(model, limits_of(GetParam(), 12, 40));
  std::vector<KvSequence> sequences(8);
  std::vector<bool> placed(sequences.size(), false);
  std::vector<int64_t> number(sequences.size(), 0);  // a new one for each life of a sequence
  int64_t lives = 0;
  int spilled_steps = 0;
  for (int step = 0; step < 400; ++step) {
    std::vector<KvSequence*> members;
    std::vector<int64_t> numbers;
    std::vector<int64_t> tokens;
    for (size_t i = 0; i < sequences.size(); ++i) {
      if (random() % 3 == 0) continue;
      KvSequence& sequence = sequences[i];
      if (!placed[i]) {
        placed[i] = cache.place(sequence, 100, 30);
        if (!placed[i]) continue;
        number[i] = ++lives;
      }
      const auto wanted = static_cast<int64_t>(1 + random() % 30);
      if (sequence.length() + wanted > 100) {
        cache.release(sequence);
        placed[i] = false;
        continue;
      }
      ASSERT_TRUE(cache.reserve(sequence, wanted)) << "it was booked";
      members.push_back(&sequence);
      numbers.push_back(number[i]);
      tokens.push_back(wanted);
      spilled_steps += sequence.spilled() ? 1 : 0;
    }
    const bool fails = random() % 4 == 0;  // a step that is given up half-way
    ASSERT_NO_FATAL_FAILURE(run_layers(cache, members, numbers, tokens, fails));
    for (size_t i = 0; i < members.size() && !fails; ++i) cache.commit(*members[i], tokens[i]);
    for (size_t i = 0; i < sequences.size(); ++i) {
      ASSERT_TRUE(intact(cache, sequences[i], number[i])) << "step " << step;
    }
    ASSERT_LE(cache.pages_in_use(), cache.capacity_pages());
    ASSERT_LE(cache.spilled_pages(), cache.spill_capacity_pages());
  }
  EXPECT_GT(spilled_steps, 100);
  for (KvSequence& sequence : sequences) cache.release(sequence);
  EXPECT_EQ(cache.pages_in_use() + cache.spilled_pages(), 0);
}

TEST_P(SpilledCache, StagesServeSeveralThreads) {
  PagedKvCache cache(model, limits_of(GetParam(), 0, 40));
  std::vector<KvSequence> sequences(4);
  for (KvSequence& sequence : sequences) ASSERT_TRUE(cache.place(sequence, 100, 20));
  for (int step = 0; step < 5; ++step) {
    for (KvSequence& sequence : sequences) ASSERT_TRUE(cache.reserve(sequence, 20));
    std::vector<std::thread> threads;
    for (size_t i = 0; i < sequences.size(); ++i) {
      threads.emplace_back([&, i] {
        KvSequence* const members[] = {&sequences[i]};
        const int64_t numbers[] = {static_cast<int64_t>(i)};
        const int64_t tokens[] = {20};
        run_layers(cache, members, numbers, tokens);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (KvSequence& sequence : sequences) cache.commit(sequence, 20);
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    EXPECT_TRUE(intact(cache, sequences[i], static_cast<int64_t>(i)));
  }
}

TEST_P(SpilledCache, AMistakenStageIsRefused) {
  PagedKvCache cache(model, limits_of(GetParam(), 0, 4));
  KvSequence sequence;
  ASSERT_TRUE(cache.place(sequence, 40, 40) && cache.reserve(sequence, 40));
  EXPECT_THROW(cache.view(sequence, LayerId(0)), Error);
  KvSequence* const members[] = {&sequence};
  EXPECT_EQ(cache.stage_bytes(members), 3 * kDirectAlignment);
  const StageBuffer small(kDirectAlignment);
  KvStage too_small(small.bytes());
  EXPECT_THROW(cache.load(too_small, members, LayerId(0)), Error);
  const StageBuffer buffer(cache.stage_bytes(members));
  KvStage stage(buffer.bytes());
  cache.load(stage, members, LayerId(0));
  EXPECT_NO_THROW(cache.view(sequence, LayerId(0), &stage));
  EXPECT_THROW(cache.view(sequence, LayerId(1), &stage), Error) << "loaded for another layer";
}

// Counts transfers and fails the one whose number it is told.
class FaultyCalls : public SpillCalls {
 public:
  ssize_t pwrite(int descriptor, const void* buffer, size_t size, off_t offset) override {
    if (++writes == fail_write) return fault();
    written += size;
    return SpillCalls::pwrite(descriptor, buffer, size, offset);
  }
  ssize_t pread(int descriptor, void* buffer, size_t size, off_t offset) override {
    if (++reads == fail_read) return fault();
    return SpillCalls::pread(descriptor, buffer, size, offset);
  }
  int reads = 0, writes = 0, fail_read = -1, fail_write = -1;
  size_t written = 0;

 private:
  static ssize_t fault() {
    errno = EIO;
    return -1;
  }
};

class SpilledCacheFaults : public ::testing::TestWithParam<DType> {
 protected:
  SpilledCacheFaults() : cache_(model, limits_of(GetParam(), 0, 20, calls_)) {
    EXPECT_TRUE(cache_.place(sequence_, 200, 50));
    step(50);
    cache_.commit(sequence_, 50);
    calls_.reads = calls_.writes = 0;
    calls_.written = 0;
  }
  void step(int64_t tokens) {
    ASSERT_TRUE(cache_.reserve(sequence_, tokens));
    KvSequence* const members[] = {&sequence_};
    const int64_t numbers[] = {7};
    run_layers(cache_, members, numbers, std::span(&tokens, 1));
  }

  FaultyCalls calls_;
  PagedKvCache cache_;
  KvSequence sequence_;
};
INSTANTIATE_TEST_SUITE_P(Types, SpilledCacheFaults, testing::both_types(), testing::type_name);

TEST_P(SpilledCacheFaults, NeighbouringPagesMoveInOneCallAndOnlyThoseThatMust) {
  step(20);  // positions 50 to 69: pages 3 and 4 are written, 0 to 3 read, in each of two layers
  EXPECT_EQ(calls_.reads, 2);
  EXPECT_EQ(calls_.writes, 2);
  EXPECT_EQ(calls_.written, 2 * 2 * kDirectAlignment);
}

TEST_P(SpilledCacheFaults, AFailedReadEndsTheStepAndNothingElse) {
  calls_.fail_read = 2;
  EXPECT_THROW(step(20), Error);
  EXPECT_TRUE(intact(cache_, sequence_, 7));
  step(20);
  cache_.commit(sequence_, 20);
  EXPECT_TRUE(intact(cache_, sequence_, 7));
}

TEST_P(SpilledCacheFaults, AFailedWriteOverCommittedPositionsLosesTheSequence) {
  calls_.fail_write = 2;
  EXPECT_THROW(step(20), Error);
  EXPECT_THROW(intact(cache_, sequence_, 7), Error);
  cache_.release(sequence_);
  EXPECT_EQ(cache_.spilled_pages(), 0);
  ASSERT_TRUE(cache_.place(sequence_, 200, 50));
  step(50);
  cache_.commit(sequence_, 50);
  EXPECT_TRUE(intact(cache_, sequence_, 7));
}

TEST_P(SpilledCacheFaults, AFailedWriteOfNewPagesLosesNothing) {
  step(14);
  cache_.commit(sequence_, 14);  // 64: full pages
  calls_.fail_write = calls_.writes + 1;
  EXPECT_THROW(step(5), Error);
  EXPECT_TRUE(intact(cache_, sequence_, 7));
  step(5);
  cache_.commit(sequence_, 5);
  EXPECT_TRUE(intact(cache_, sequence_, 7));
}

TEST_P(SpilledCache, AFolderWithoutRoomOrPermissionIsRefusedAtOnce) {
  KvLimits limits = limits_of(GetParam(), 1, 2);
  limits.spill_store = testing::file_store(std::filesystem::path(::testing::TempDir()) /
                                           ("klotski-no-folder" + std::to_string(::getpid())));
  EXPECT_THROW(PagedKvCache(model, limits), Error);
}

}  // namespace
}  // namespace klotski
