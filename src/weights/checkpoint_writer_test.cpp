#include "weights/checkpoint_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "weights/checkpoint.h"
#include "weights/front_to_back.h"
#include "weights/testing.h"

namespace klotski {
namespace {

using namespace testing_files;

std::byte byte_of(size_t tensor, uint64_t offset) {
  return static_cast<std::byte>(31 * tensor + offset * 7 + offset / 251);
}

void make(size_t tensor, uint64_t offset, std::span<std::byte> out) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = byte_of(tensor, offset + i);
}

const std::vector<NewTensor> kTensors = {
    {"m", DType::U8, {5000, 700}},     {"v", DType::F32, {600'000}},
    {"none", DType::BF16, {0, 4}},     {"one", DType::F64, {}},
    {"wide", DType::U8, {2, 1200000}}, {"packed", DType::F4, {3, 2}}};

TEST(CheckpointWriter, WritesWhatIsMadeInAnyNumberOfFiles) {
  struct Case {
    uint64_t most;
    size_t files;
  };
  for (const auto [most, files] :
       {Case{kMaxShardBytes, 1}, Case{5'000'000, 2}, Case{3'000'000, 3}, Case{1, 6}}) {
    const ScratchFolder scratch;
    uint64_t written = 0;
    EXPECT_EQ(write_checkpoint(
                  scratch.path(), kTensors, make, [&](uint64_t bytes) { written += bytes; }, most),
              files);
    const Checkpoint checkpoint = Checkpoint::open(scratch.path());
    EXPECT_EQ(checkpoint.shard_count(), files);
    EXPECT_EQ(checkpoint.total_bytes(), written);
    ASSERT_EQ(checkpoint.tensors().size(), kTensors.size());
    for (size_t t = 0; t < kTensors.size(); ++t) {
      const TensorEntry& entry = checkpoint.require(kTensors[t].name);
      EXPECT_EQ(entry.dtype, kTensors[t].dtype);
      EXPECT_EQ(entry.shape, kTensors[t].shape);
      std::vector<std::byte> found(entry.bytes), expected(entry.bytes);
      checkpoint.read(entry, found);
      make(t, 0, expected);
      EXPECT_EQ(found, expected) << entry.name;
    }
  }
}

TEST(CheckpointWriter, PiecesOfMatricesAreWholeRows) {
  const ScratchFolder scratch;
  std::atomic<int> pieces = 0;
  write_checkpoint(
      scratch.path(), kTensors,
      [&](size_t tensor, uint64_t offset, std::span<std::byte> out) {
        ++pieces;
        EXPECT_LE(out.size(), kWrittenPieceBytes);
        EXPECT_TRUE(tensor != 0 || (offset % 700 == 0 && out.size() % 700 == 0));
        make(tensor, offset, out);
      },
      [](uint64_t) {});
  EXPECT_GT(pieces, 8);
}

TEST(CheckpointWriter, CompleteFilesAreKeptWhereAsked) {
  const ScratchFolder scratch;
  std::vector<size_t> complete;
  uint64_t kept = 0, written = 0;
  const ShardEvents events = {.kept = [&](uint64_t bytes) { kept += bytes; },
                              .complete =
                                  [&](size_t first, size_t count) {
                                    EXPECT_EQ(count, 1u);
                                    if (first == 4) fail(ErrorKind::usage, "enough");
                                    complete.push_back(first);
                                  }};
  const auto write = [&](const ShardEvents& keeping) {
    write_checkpoint(
        scratch.path(), kTensors, make, [&](uint64_t bytes) { written += bytes; }, 1, keeping);
  };
  EXPECT_EQ(kind_of([&] { write(events); }), ErrorKind::usage);
  EXPECT_EQ(complete, (std::vector<size_t>{0, 1, 2, 3}));
  EXPECT_EQ(kept, 0u);
  // One file is of other tensors, and one was not complete.
  const auto file = [&](int number) {
    return scratch.path() / fmt::format("model-0000{}-of-00006.safetensors", number);
  };
  EXPECT_FALSE(std::filesystem::exists(file(5)));
  write_file(file(2), content_of(file(1)));
  written = 0;
  write(
      {.kept = events.kept, .complete = [&](size_t first, size_t) { complete.push_back(first); }});
  EXPECT_EQ(complete, (std::vector<size_t>{0, 1, 2, 3, 1, 4, 5}));
  EXPECT_EQ(kept, 5000u * 700 + 8);
  EXPECT_EQ(written, 2'400'000u + 2'400'000 + 3);
  const Checkpoint checkpoint = Checkpoint::open(scratch.path());
  EXPECT_EQ(checkpoint.total_bytes(), kept + written);
  EXPECT_FALSE(std::filesystem::exists(file(5).native() + ".partial"));
}

TEST(CheckpointWriter, PiecesOfSeveralMatricesAreWholeRows) {
  const ScratchFolder scratch;
  write_checkpoint(
      scratch.path(), {{"m", DType::U8, {3, 1000, 700}}},
      [](size_t, uint64_t offset, std::span<std::byte> out) {
        EXPECT_TRUE(offset % 700 == 0 && out.size() % 700 == 0);
        make(0, offset, out);
      },
      [](uint64_t) {});
}

TEST(CheckpointWriter, AFailureEndsIt) {
  const ScratchFolder scratch;
  EXPECT_EQ(kind_of([&] {
              write_checkpoint(
                  scratch.path(), kTensors,
                  [](size_t tensor, uint64_t, std::span<std::byte>) {
                    if (tensor == 1) fail(ErrorKind::bad_model, "broken");
                  },
                  [](uint64_t) {});
            }),
            ErrorKind::bad_model);
}

TEST(FrontToBack, TakesEachOnceUntilOneFails) {
  std::vector<std::atomic<int>> seen(100);
  front_to_back(seen.size(), [&](size_t i) { ++seen[i]; });
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](const auto& count) { return count == 1; }));
  front_to_back(0, [](size_t) { FAIL(); });
  std::atomic<int> last = 0;
  EXPECT_EQ(kind_of([&] {
              front_to_back(10'000, [&](size_t i) {
                if (i == 3) fail(ErrorKind::usage, "enough");
                if (i > 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                if (i == 9'999) ++last;
              });
            }),
            ErrorKind::usage);
  EXPECT_EQ(last, 0);
}

}  // namespace
}  // namespace klotski
