// Models of GGUF files: one file, shards, and shards that do not belong together.

#include <gtest/gtest.h>

#include "weights/checkpoint.h"
#include "weights/model_folder.h"
#include "weights/testing.h"
#include "weights/testing_gguf.h"

namespace klotski {
namespace {

using namespace testing_gguf;
using testing_files::contains;
using testing_files::error_of;
using testing_files::ScratchFolder;
using testing_files::write_file;

// A shard with one tensor of four bytes.
std::string shard_file(uint16_t number, uint16_t count, const std::string& tensor, int32_t total) {
  Pieces pieces;
  pieces.pairs = {u16_pair("split.no", number), u16_pair("split.count", count),
                  pair_of("split.tensors.count", kI32, bytes_of(total))};
  pieces.add(tensor, {1}, 0, tensor + "...");
  return pieces.file();
}

class GgufShards : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file(shard(1), shard_file(0, 3, "c", 3));
    write_file(shard(2), shard_file(1, 3, "a", 3));
    write_file(shard(3), shard_file(2, 3, "b", 3));
  }
  std::filesystem::path shard(int number) const {
    return folder_.path() / fmt::format("m-{:05}-of-00003.gguf", number);
  }
  std::string refused_shards() const {
    return error_of([&] { Checkpoint::open(shard(1)); });
  }
  ScratchFolder folder_;
};

TEST_F(GgufShards, AreOneModel) {
  const Checkpoint model = Checkpoint::open(find_model(shard(1).native()));
  EXPECT_EQ(model.shard_count(), 3u);
  ASSERT_EQ(model.tensors().size(), 3u);
  EXPECT_EQ(model.folder(), shard(1));
  for (const char* name : {"a", "b", "c"}) {
    std::string bytes(4, '\0');
    model.read(model.require(name), std::as_writable_bytes(std::span(bytes)));
    EXPECT_EQ(bytes, std::string(name) + "...");
  }
}

TEST_F(GgufShards, TheFirstMustBeNamed) {
  EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(shard(2)); }),
                       "expected the first of 3 files, found number 2; name 'm-00001-of-00003"));
  write_file(folder_.path() / "other.gguf", shard_file(0, 3, "c", 3));
  EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(folder_.path() / "other.gguf"); }),
                       "expected a name that ends with -00001-of-00003.gguf"));
}

TEST_F(GgufShards, MustBeThereAndBelongTogether) {
  write_file(shard(2), shard_file(0, 3, "a", 3));
  EXPECT_TRUE(contains(refused_shards(), "expected number 2 of 3 files, found number 1 of 3"));
  write_file(shard(2), shard_file(1, 2, "a", 3));
  EXPECT_TRUE(contains(refused_shards(), "found number 2 of 2"));
  write_file(shard(2), shard_file(1, 3, "b", 3));
  EXPECT_TRUE(contains(refused_shards(), "expected tensor 'b' in one file"));
  write_file(shard(2), shard_file(1, 3, "a", 3).substr(0, 150));
  EXPECT_TRUE(contains(refused_shards(), "m-00002-of-00003.gguf"));
  std::filesystem::remove(shard(2));
  EXPECT_TRUE(contains(refused_shards(), "m-00002-of-00003.gguf"));
  const ScratchFolder outside;  // with a sound shard
  write_file(outside.path() / "shard.gguf", shard_file(1, 3, "a", 3));
  std::filesystem::create_symlink(outside.path() / "shard.gguf", shard(2));
  EXPECT_TRUE(contains(refused_shards(), "m-00002-of-00003.gguf"));
  EXPECT_TRUE(contains(refused_shards(), "found a link to"));
}

TEST_F(GgufShards, MustHaveAllTensors) {
  write_file(shard(1), shard_file(0, 3, "c", 4));
  EXPECT_TRUE(contains(refused_shards(), "expected the 3 tensors of all files, found 4"));
}

TEST(GgufModel, OneFileNeedsNoNumber) {
  const ScratchFolder folder;
  Pieces pieces;
  pieces.add("a", {2, 32}, 8, std::string(68, 'q'));
  pieces.add("b", {1}, 0, "1234");
  write_file(folder.path() / "m.gguf", pieces.file());
  const Checkpoint model = Checkpoint::open(folder.path() / "m.gguf");
  EXPECT_EQ(model.total_bytes(), 72u);
  EXPECT_EQ(model.require("a").dtype, DType::Q8_0);
}

}  // namespace
}  // namespace klotski
