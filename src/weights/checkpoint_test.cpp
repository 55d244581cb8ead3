#include "weights/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <thread>
#include <utility>

#include "weights/testing.h"

namespace klotski {
namespace {

namespace fs = std::filesystem;
using testing_files::contains;
using testing_files::error_of;
using testing_files::safetensors_text;
using testing_files::ScratchFolder;
using testing_files::write_file;

constexpr const char* kIndex = "model.safetensors.index.json";

// A file with one tensor of bytes, `text`.
std::string one_tensor(const std::string& name, const std::string& text) {
  return safetensors_text(
      fmt::format(R"({{"{}":{{"dtype":"U8","shape":[{}],"data_offsets":[0,{}]}}}})", name,
                  text.size(), text.size()),
      text);
}

std::string text_of(const Checkpoint& checkpoint, const std::string& name) {
  const TensorEntry& entry = checkpoint.require(name);
  std::string text(entry.bytes, '\0');
  checkpoint.read(entry, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string shard_name(int i) { return fmt::format("model-{:05}.safetensors", i); }

// Two shards, `a` in the first and `b` in the second.
void write_two_shards(const fs::path& folder) {
  write_file(folder / shard_name(1), one_tensor("a", "first"));
  write_file(folder / shard_name(2), one_tensor("b", "second"));
}

void write_index(const fs::path& folder, const std::string& map,
                 const std::string& metadata = "{}") {
  write_file(folder / kIndex, R"({"metadata":)" + metadata + R"(,"weight_map":{)" + map + "}}");
}

constexpr const char* kMap = R"("a":"model-00001.safetensors","b":"model-00002.safetensors")";

std::string refused(const ScratchFolder& folder) {
  return error_of([&] { Checkpoint::open(folder.path()); });
}

TEST(Checkpoint, ReadsASingleFile) {
  const ScratchFolder folder;
  write_file(folder.path() / "other.safetensors", one_tensor("w", "0123456789"));
  const Checkpoint only = Checkpoint::open(folder.path());
  EXPECT_EQ(text_of(only, "w"), "0123456789");
  write_file(folder.path() / "model.safetensors", one_tensor("w", "abc"));  // now this one wins
  const Checkpoint named = Checkpoint::open(folder.path());
  EXPECT_EQ(text_of(named, "w"), "abc");
  EXPECT_EQ(named.shard_count(), 1u);
  EXPECT_EQ(named.total_bytes(), 3u);
}

TEST(Checkpoint, ReadsShardsInNameOrder) {
  const ScratchFolder folder;
  write_two_shards(folder.path());
  write_index(folder.path(), kMap, R"({"total_size":11})");
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  ASSERT_EQ(checkpoint.tensors().size(), 2u);
  EXPECT_EQ(checkpoint.tensors()[0].name, "a");
  EXPECT_EQ(text_of(checkpoint, "b"), "second");
  EXPECT_EQ(checkpoint.shard_count(), 2u);
  EXPECT_EQ(checkpoint.total_bytes(), 11u);
  EXPECT_EQ(checkpoint.find("c"), nullptr);
  EXPECT_TRUE(contains(error_of([&] { checkpoint.require("c"); }), "'c'"));
  EXPECT_EQ(checkpoint.file(checkpoint.require("b").shard)->path(), folder.path() / shard_name(2));
}

TEST(Checkpoint, ReadsRangesAndChecksThem) {
  const ScratchFolder folder;
  write_file(folder.path() / "model.safetensors", one_tensor("w", "0123456789"));
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  const TensorEntry& entry = checkpoint.require("w");
  std::string out(3, '\0');
  checkpoint.read_range(entry, 7, std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out, "789");
  EXPECT_THROW(checkpoint.read_range(entry, 8, std::as_writable_bytes(std::span(out))), Error);
  EXPECT_THROW(checkpoint.read_range(entry, UINT64_MAX, std::as_writable_bytes(std::span(out))),
               Error);
  EXPECT_THROW(checkpoint.read(entry, std::as_writable_bytes(std::span(out))), Error);
}

TEST(Checkpoint, ReadsTheBundledModel) {
  const Checkpoint checkpoint = Checkpoint::open(fs::path(KLOTSKI_MODELS) / "tiny-mixtral");
  EXPECT_EQ(checkpoint.shard_count(), 3u);
  EXPECT_EQ(checkpoint.total_bytes(), 16931712u);
  EXPECT_EQ(checkpoint.require("model.embed_tokens.weight").shape.size(), 2u);
}

TensorEntry described_tensor(const std::string& name, DType dtype, Shape shape) {
  TensorEntry entry;
  entry.name = name;
  entry.dtype = dtype;
  entry.shape = std::move(shape);
  return entry;
}

TEST(Checkpoint, DescribedTensorsLieOneAfterTheOtherAndAligned) {
  const Checkpoint checkpoint = Checkpoint::described(
      "/nowhere",
      {described_tensor("z", DType::BF16, {3, 5}), described_tensor("b", DType::F32, {1024}),
       described_tensor("empty", DType::F32, {0, 7}), described_tensor("a", DType::F32, {1025})});
  EXPECT_EQ(checkpoint.shard_count(), 0u);
  EXPECT_EQ(checkpoint.folder(), "/nowhere");
  EXPECT_EQ(checkpoint.total_bytes(), 30u + 4096u + 4100u);
  ASSERT_EQ(checkpoint.tensors().size(), 4u);
  EXPECT_EQ(checkpoint.tensors()[0].name, "a");  // tensors are sorted by name
  const auto lies = [&](const char* name, uint64_t offset, uint64_t bytes) {
    const TensorEntry& entry = checkpoint.require(name);
    EXPECT_EQ(entry.offset, offset) << name;
    EXPECT_EQ(entry.bytes, bytes) << name;
    EXPECT_EQ(entry.shard, 0u);
  };
  lies("z", 0, 30);
  lies("b", 4096, 4096);
  lies("empty", 8192, 0);
  lies("a", 8192, 4100);
  EXPECT_EQ(Checkpoint::described("/nowhere", {}).total_bytes(), 0u);
}

TEST(Checkpoint, DescribedTensorsHaveNothingToRead) {
  const Checkpoint checkpoint =
      Checkpoint::described("/nowhere", {described_tensor("w", DType::U8, {4})});
  const auto refused_as = [](const auto& action) {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_TRUE(contains(error.what(), "no file")) << error.what();
      return error.kind();
    }
    return ErrorKind::usage;
  };
  std::string out(4, '\0');
  const auto bytes = std::as_writable_bytes(std::span(out));
  const TensorEntry& entry = checkpoint.require("w");
  EXPECT_EQ(refused_as([&] { checkpoint.file(0); }), ErrorKind::internal);
  EXPECT_EQ(refused_as([&] { checkpoint.read(entry, bytes); }), ErrorKind::internal);
  EXPECT_EQ(refused_as([&] { checkpoint.read_range(entry, 1, bytes.first(2)); }),
            ErrorKind::internal);
}

TEST(Checkpoint, DescriptionsThatCannotBe) {
  const auto made_of = [](std::vector<TensorEntry> tensors) {
    Checkpoint::described("/nowhere", std::move(tensors));
  };
  EXPECT_TRUE(contains(
      error_of([&] {
        made_of({described_tensor("w", DType::U8, {4}), described_tensor("w", DType::U8, {4})});
      }),
      "'w'"));
  EXPECT_THROW(made_of({described_tensor("w", DType::F32, {int64_t{1} << 62, 2})}), Error);
  std::vector<TensorEntry> huge;
  for (int i = 0; i < 16; ++i) {
    EXPECT_NO_THROW(made_of(huge));
    huge.push_back(described_tensor(std::to_string(i), DType::U8, {int64_t{1} << 60}));
  }
  EXPECT_THROW(made_of(huge), Error);  // 2^64 bytes
}

// Folders that are refused, one test for each kind of fault.
TEST(Checkpoint, MissingFiles) {
  const ScratchFolder folder;
  EXPECT_TRUE(contains(refused(folder), "found none"));
  write_two_shards(folder.path());
  EXPECT_TRUE(contains(refused(folder), "2 without an index"));
  write_index(folder.path(), kMap);
  fs::remove(folder.path() / shard_name(2));
  EXPECT_TRUE(contains(refused(folder), shard_name(2)));
  EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(folder.path() / "absent"); }), "absent"));
}

TEST(Checkpoint, ShardNamesStayInTheFolder) {
  const ScratchFolder folder;
  const fs::path model = folder.path() / "model";
  write_file(folder.path() / "out.safetensors", one_tensor("a", "x"));
  write_file(model / "sub" / "in.safetensors", one_tensor("a", "x"));
  for (const std::string& name :
       {std::string("../out.safetensors"), (folder.path() / "out.safetensors").native(),
        std::string("sub/in.safetensors"), std::string("..\\u0000.safetensors"),
        std::string("./x.safetensors"), std::string(kIndex), std::string(""), std::string("."),
        std::string("/dev/zero"), std::string("config.json")}) {
    write_index(model, "\"a\":\"" + name + "\"");
    EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(model); }), "expected")) << name;
  }
}

TEST(Checkpoint, IndexAndFilesMustAgree) {
  const ScratchFolder folder;
  write_two_shards(folder.path());
  write_index(folder.path(), R"("a":"model-00002.safetensors","b":"model-00001.safetensors")");
  EXPECT_TRUE(contains(refused(folder), "expected tensor 'a' in 'model-00002.safetensors', found"));
  write_index(folder.path(), std::string(kMap) + R"(,"c":"model-00001.safetensors")");
  EXPECT_TRUE(contains(refused(folder), "no file"));
  write_index(folder.path(), kMap, R"({"total_size":12})");
  EXPECT_TRUE(contains(refused(folder), "the 11 bytes of the tensors, found 12"));
  write_index(folder.path(), kMap, R"({"total_size":11.0})");
  EXPECT_EQ(Checkpoint::open(folder.path()).total_bytes(), 11u);
  write_file(folder.path() / shard_name(2), one_tensor("a", "second"));
  write_index(folder.path(), kMap);
  EXPECT_TRUE(contains(refused(folder), "expected tensor 'a' in one file"));
}

TEST(Checkpoint, TensorsBeyondTheIndexAreTaken) {
  const ScratchFolder folder;
  write_file(folder.path() / shard_name(1),
             safetensors_text(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                              R"("extra":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                              "xy"));
  write_index(folder.path(), R"("a":"model-00001.safetensors")");
  EXPECT_EQ(text_of(Checkpoint::open(folder.path()), "extra"), "y");
}

TEST(Checkpoint, MalformedIndices) {
  const ScratchFolder folder;
  write_two_shards(folder.path());
  for (const char* bad :
       {"", "[]", "{}", R"({"weight_map":null})", R"({"weight_map":[]})", R"({"weight_map":{}})",
        R"({"weight_map":{"a":1}})", R"({"weight_map":{"a":null}})",
        R"({"weight_map":{"a":["x"]}})",
        R"({"weight_map":{"a":"model-00001.safetensors","a":"model-00002.safetensors"}})",
        R"({"weight_map":{"a":"model-00001.safetensors"},"metadata":{"total_size":-5}})",
        R"({"weight_map":{"a":"model-00001.safetensors"},"metadata":{"total_size":5.5}})",
        R"({"weight_map":{"a":"model-00001.safetensors"},"metadata":{"total_size":"5"}})",
        R"({"weight_map":{"a":"model-00001.safetensors"},"metadata":{"total_size":1e300}})",
        R"({"weight_map":{"a":"model-00001.safetensors"},"metadata":7})"}) {
    write_file(folder.path() / kIndex, bad);
    EXPECT_TRUE(contains(refused(folder), kIndex)) << bad;
  }
}

TEST(Checkpoint, LinksMayNotLeaveTheFolder) {
  const ScratchFolder folder;
  const fs::path model = folder.path() / "model";
  write_file(folder.path() / "out", one_tensor("a", "x"));
  write_file(model / "in", one_tensor("a", "y"));
  const fs::path link = model / "model.safetensors";
  fs::create_symlink("../out", link);
  EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(model); }), "found a link to"));
  fs::remove(link);
  fs::create_symlink("in", link);
  EXPECT_EQ(text_of(Checkpoint::open(model), "a"), "y");
  fs::remove(link);
  fs::create_symlink("model.safetensors", link);  // a loop
  EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(model); }), "cannot be found"));
  fs::remove(link);
  fs::create_symlink("absent", link);
  EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(model); }), "cannot be found"));
  fs::create_symlink("../out", model / kIndex);  // the rule for links holds for the index too
  EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(model); }), "found a link to"));
}

TEST(Checkpoint, ReadsSnapshotsOfTheHubCache) {
  const ScratchFolder cache;
  const fs::path repository = cache.path() / "models--org--name";
  const fs::path snapshot = repository / "snapshots" / "abc";
  fs::create_directories(snapshot);
  write_file(repository / "blobs" / "0123", one_tensor("a", "blob"));
  write_file(cache.path() / "models--org--other" / "blobs" / "0123", one_tensor("a", "other"));
  fs::create_symlink("../../blobs/0123", snapshot / "model.safetensors");
  EXPECT_EQ(text_of(Checkpoint::open(snapshot), "a"), "blob");
  fs::create_directory_symlink(snapshot, cache.path() / "elsewhere");  // the folder may be a link
  EXPECT_EQ(text_of(Checkpoint::open(cache.path() / "elsewhere"), "a"), "blob");
  fs::remove(snapshot / "model.safetensors");
  fs::create_symlink("../../../models--org--other/blobs/0123", snapshot / "model.safetensors");
  EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(snapshot); }), "found a link to"));
  // The name of this folder only begins like that of the allowed one.
  write_file(repository / "blobs2" / "0123", one_tensor("a", "x"));
  fs::remove(snapshot / "model.safetensors");
  fs::create_symlink("../../blobs2/0123", snapshot / "model.safetensors");
  EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(snapshot); }), "found a link to"));
}

TEST(Checkpoint, RefusesWhatIsNotARegularFile) {
  const ScratchFolder folder;
  const fs::path path = folder.path() / "model.safetensors";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_TRUE(contains(refused(folder), "regular file"));
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_TRUE(contains(refused(folder), "regular file"));
  fs::remove(path);
  fs::create_symlink("/dev/zero", path);
  EXPECT_TRUE(contains(refused(folder), "found a link to"));
  fs::remove(path);
  write_file(path, one_tensor("a", "x"));
  fs::permissions(path, fs::perms::none);
  if (::geteuid() != 0) {  // root reads every file
    EXPECT_TRUE(contains(refused(folder), "cannot be opened"));
  }
}

// Writes `count` shards with one tensor each, `t0` on, and their index.
void write_shards(const fs::path& folder, int count) {
  std::string map;
  for (int i = 0; i < count; ++i) {
    write_file(folder / shard_name(i), one_tensor(fmt::format("t{}", i), fmt::format("text{}", i)));
    map += fmt::format("{}\"t{}\":\"{}\"", i > 0 ? "," : "", i, shard_name(i));
  }
  write_index(folder, map);
}

TEST(Checkpoint, FilesThatChangeAreErrors) {
  const ScratchFolder folder;
  write_shards(folder.path(), 40);  // more than stay open
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  EXPECT_EQ(text_of(checkpoint, "t0"), "text0");
  const fs::path still_open = folder.path() / shard_name(0);
  ASSERT_EQ(::truncate(still_open.c_str(), 60), 0);
  EXPECT_TRUE(contains(error_of([&] { text_of(checkpoint, "t0"); }), "ends at offset"));
  const fs::path replaced = folder.path() / shard_name(1);
  write_file(folder.path() / "new", one_tensor("t1", "evil1"));
  fs::rename(folder.path() / "new", replaced);
  EXPECT_TRUE(contains(error_of([&] { text_of(checkpoint, "t1"); }), "changed on disk"));
  fs::remove(folder.path() / shard_name(2));
  EXPECT_TRUE(contains(error_of([&] { text_of(checkpoint, "t2"); }), "cannot be opened"));
  EXPECT_EQ(text_of(checkpoint, "t3"), "text3");  // other files still serve
}

// 190 shards under a limit of 32 descriptors, read by several threads.
TEST(Checkpoint, FewDescriptorsAreEnough) {
  const ScratchFolder folder;
  write_shards(folder.path(), 190);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 32;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  std::atomic<int> wrong{0};
  {
    const Checkpoint checkpoint = Checkpoint::open(folder.path());
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < 600; ++i) {
          const int tensor = (i * (thread + 1) * 7) % 190;
          try {
            wrong +=
                text_of(checkpoint, fmt::format("t{}", tensor)) != fmt::format("text{}", tensor);
          } catch (const Error&) {
            ++wrong;
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(wrong, 0);
}

// Every read that fails is reported and leaves the checkpoint usable.
TEST(Checkpoint, FailingReadsAreReported) {
  class FailsOnce : public ReadCalls {
   public:
    explicit FailsOnce(int failing) : failing_(failing) {}
    ssize_t pread(int descriptor, void* buffer, size_t size, off_t offset) override {
      if (++calls_ == failing_) {
        errno = EIO;
        return -1;
      }
      return ReadCalls::pread(descriptor, buffer, size, offset);
    }

   private:
    int calls_ = 0;
    int failing_;
  };
  const ScratchFolder folder;
  write_two_shards(folder.path());
  write_index(folder.path(), kMap);
  for (int failing = 1; failing <= 5; ++failing) {  // the index, two prefixes, two headers
    FailsOnce calls(failing);
    const ScopedReadCalls in_force(calls);
    EXPECT_TRUE(contains(refused(folder), "failed")) << failing;
  }
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  FailsOnce calls(1);
  const ScopedReadCalls in_force(calls);
  EXPECT_TRUE(contains(error_of([&] { text_of(checkpoint, "a"); }), "failed"));
  EXPECT_EQ(text_of(checkpoint, "a"), "first");
}

}  // namespace
}  // namespace klotski
