#include "model/compact_model.h"
#include "weights/checkpoint.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "base/folder.h"
#include "model/config.h"
#include "model/unit_layout.h"
#include "tensor/compact.h"
#include "weights/testing.h"

namespace klotski {
namespace {

using namespace testing_files;
namespace fs = std::filesystem;

const fs::path kTiny = fs::path(KLOTSKI_MODELS) / "tiny-mixtral";

CompactReport compact(const fs::path& model, const fs::path& out, uint64_t shard = kMaxShardBytes) {
  return compact_model(
      read_config(model), Checkpoint::open(model), out,
      [](CompactStep, uint64_t done, uint64_t total) { EXPECT_LE(done, total); }, shard);
}

std::vector<std::byte> bytes_of(const Checkpoint& checkpoint, const TensorEntry& entry) {
  std::vector<std::byte> bytes(entry.bytes);
  checkpoint.read(entry, bytes);
  return bytes;
}

std::vector<std::byte> expanded(const std::vector<std::byte>& compact, const Shape& shape) {
  std::vector<std::byte> plain(static_cast<size_t>(shape[0] * shape[1] * 2));
  std::vector<uint16_t> row(static_cast<size_t>(shape[1]));
  for (int64_t i = 0; i < shape[0]; ++i) {
    expand_row(compact.data() + i * compact_row_bytes(shape[1]), shape[1], 0, row);
    std::memcpy(plain.data() + i * shape[1] * 2, row.data(), row.size() * 2);
  }
  return plain;
}

// Each tensor of the first is in the second, as it is or compact; how many are compact.
int64_t expect_same_weights(const fs::path& before, const fs::path& after) {
  const Checkpoint plain = Checkpoint::open(before);
  const Checkpoint made = Checkpoint::open(after);
  EXPECT_EQ(plain.tensors().size(), made.tensors().size());
  int64_t compact = 0;
  for (const TensorEntry& entry : plain.tensors()) {
    const TensorEntry* same = made.find(entry.name);
    if (same != nullptr) {
      EXPECT_EQ(same->dtype, entry.dtype);
      EXPECT_EQ(same->shape, entry.shape);
      EXPECT_EQ(bytes_of(made, *same), bytes_of(plain, entry)) << entry.name;
      continue;
    }
    ++compact;
    const TensorEntry& other = made.require(entry.name + ".compact");
    EXPECT_LT(other.bytes, entry.bytes);
    EXPECT_EQ(expanded(bytes_of(made, other), entry.shape), bytes_of(plain, entry)) << entry.name;
  }
  const UnitLayouts readable(read_config(after), made);
  return compact;
}

TEST(CompactModel, KeepsEveryBit) {
  const ScratchFolder scratch;
  const fs::path out = scratch.path() / "out";
  const CompactReport report = compact(kTiny, out);
  EXPECT_EQ(report.folder, out);
  EXPECT_EQ(report.weight_files, 1u);
  EXPECT_EQ(report.counts.compact, 6 * 8 * 3);
  EXPECT_EQ(report.counts.left(), 0);
  EXPECT_TRUE(report.not_copied.empty());
  EXPECT_EQ(expect_same_weights(kTiny, out), 6 * 8 * 3);
  EXPECT_EQ(Checkpoint::open(out).total_bytes(), report.bytes_after);
  EXPECT_EQ(Checkpoint::open(kTiny).total_bytes(), report.bytes_before);
  for (const fs::directory_entry& entry : fs::directory_iterator(kTiny)) {
    const std::string name = entry.path().filename();
    if (contains(name, ".safetensors")) continue;
    EXPECT_EQ(content_of(out / name), content_of(entry.path())) << name;
  }

  const fs::path shards = scratch.path() / "shards";
  EXPECT_GT(compact(kTiny, shards, 4'000'000).weight_files, 2u);
  EXPECT_EQ(expect_same_weights(kTiny, shards), 6 * 8 * 3);
}

TEST(CompactModel, LeavesWhatIsNoSmallerWhenCompact) {
  const ScratchFolder scratch;
  const fs::path model = fs::path(KLOTSKI_TEST_DATA) / "models" / "mixtral";
  const CompactReport report = compact(model, scratch.path() / "out");
  EXPECT_GT(report.counts.compact, 0);
  EXPECT_EQ(report.counts.not_smaller, 2 * report.counts.compact);  // gate and up, of 64 columns
  EXPECT_EQ(expect_same_weights(model, scratch.path() / "out"), report.counts.compact);
  EXPECT_EQ(why_left(report.counts),
            fmt::format("{} no smaller when compact", report.counts.not_smaller));
}

// The tiny model, its tensors and their bytes changed.
void write_changed(const fs::path& folder, const std::function<void(NewTensor&)>& change_tensor,
                   const std::function<void(const NewTensor&, std::span<std::byte>)>& change) {
  fs::create_directory(folder);
  fs::copy_file(kTiny / "config.json", folder / "config.json");
  const Checkpoint tiny = Checkpoint::open(kTiny);
  std::vector<NewTensor> tensors = {{"unused", DType::I64, {3}}};
  for (const TensorEntry& entry : tiny.tensors()) {
    tensors.push_back({entry.name, entry.dtype, entry.shape});
    change_tensor(tensors.back());
  }
  write_checkpoint(
      folder, tensors,
      [&](size_t tensor, uint64_t offset, std::span<std::byte> out) {
        std::fill(out.begin(), out.end(), std::byte{7});
        const TensorEntry* entry = tiny.find(tensors[tensor].name);
        if (entry != nullptr && entry->dtype == tensors[tensor].dtype) {
          tiny.read_range(*entry, offset, out);
        }
        change(tensors[tensor], out);
      },
      [](uint64_t) {});
}

TEST(CompactModel, LeavesNumbersThatAreTooDifferentAndTensorsItDoesNotKnow) {
  const ScratchFolder scratch;
  const fs::path model = scratch.path() / "model";
  const std::string changed = "model.layers.1.block_sparse_moe.experts.2.w3.weight";
  write_changed(
      model,
      [](NewTensor& tensor) {
        if (contains(tensor.name, "layers.3.") && contains(tensor.name, "experts.1.")) {
          tensor.dtype = DType::F16;
        }
      },
      [&](const NewTensor& tensor, std::span<std::byte> out) {
        if (tensor.name != changed) return;
        for (size_t i = 0; i < 64; ++i) out[i] = static_cast<std::byte>(i * 41);
      });
  const CompactReport report = compact(model, scratch.path() / "out");
  EXPECT_EQ(report.counts.compact, 6 * 8 * 3 - 4);
  EXPECT_EQ(report.counts.too_different, 1);
  EXPECT_EQ(report.counts.not_bf16, 3);
  EXPECT_EQ(expect_same_weights(model, scratch.path() / "out"), 6 * 8 * 3 - 4);
  EXPECT_NE(Checkpoint::open(scratch.path() / "out").find("unused"), nullptr);
  EXPECT_NE(Checkpoint::open(scratch.path() / "out").find(changed), nullptr);
}

TEST(CompactModel, AlignsRowsWhateverTensorsTheFileHad) {
  const ScratchFolder scratch;
  const fs::path model = scratch.path() / "model";
  write_changed(
      model, [](NewTensor&) {}, [](const NewTensor&, std::span<std::byte>) {});
  EXPECT_EQ(Checkpoint::open(model).require("unused").bytes, 24u);
  for (const uint64_t shard : {kMaxShardBytes, uint64_t{4'000'000}}) {
    const fs::path out = scratch.path() / fmt::format("out{}", shard);
    compact(model, out, shard);
    EXPECT_EQ(expect_same_weights(model, out), 6 * 8 * 3);
    const ModelDescription description = read_config(out);
    const Checkpoint made = Checkpoint::open(out);
    for (const WeightUnit& unit : units_of(description, UnitKind::expert)) {
      EXPECT_FALSE(layout_unit(description, made, unit).must_settle()) << format_unit(unit);
    }
  }
}

// "name: reason" of each, in order.
std::vector<std::string> left_out(const CompactReport& report) {
  std::vector<std::string> lines;
  for (const NotCopied& entry : report.not_copied) {
    lines.push_back(entry.name + ": " + entry.reason);
  }
  return lines;
}

TEST(CompactModel, NamesWhatItDoesNotCopy) {
  const ScratchFolder scratch;
  const fs::path model = scratch.path() / "model";
  fs::copy(kTiny, model);
  fs::create_directory(model / "original");
  for (const char* name : {"a.gguf", "b.pth", "pytorch_model-1.bin", "other.safetensors", "large",
                           "notes.txt", ".hidden"}) {
    write_file(model / name, name);
  }
  fs::resize_file(model / "large", (uint64_t{256} << 20) + 1);  // takes no room on the disk
  write_file(scratch.path() / "outside", "text");
  fs::create_symlink("../outside", model / "link-out");
  fs::create_symlink("notes.txt", model / "link-in");
  fs::create_symlink("loop", model / "loop");
  fs::create_symlink("absent", model / "dangling");

  const fs::path out = scratch.path() / "out";
  const std::vector<std::string> lines = left_out(compact(model, out));
  ASSERT_EQ(lines.size(), 9u);
  EXPECT_EQ(lines[0], "a.gguf: other weights");
  EXPECT_EQ(lines[1], "b.pth: other weights");
  EXPECT_EQ(lines[2], "dangling: No such file or directory");
  EXPECT_EQ(lines[3], "large: too large");
  EXPECT_TRUE(contains(lines[4], "link-out: ")) << lines[4];
  EXPECT_TRUE(contains(lines[4], "found a link to")) << lines[4];
  EXPECT_EQ(lines[5], "loop: Too many levels of symbolic links");
  EXPECT_EQ(lines[6], "original: a folder");
  EXPECT_EQ(lines[7], "other.safetensors: other weights");
  EXPECT_EQ(lines[8], "pytorch_model-1.bin: other weights");
  for (const NotCopied& entry : compact(model, scratch.path() / "again").not_copied) {
    EXPECT_FALSE(has_entry(out, entry.name)) << entry.name;
  }
  EXPECT_FALSE(has_entry(out, ".hidden"));
  EXPECT_EQ(content_of(out / "notes.txt"), "notes.txt");
  EXPECT_EQ(content_of(out / "link-in"), "notes.txt");
  EXPECT_FALSE(fs::is_symlink(out / "link-in"));

  // Files that the model needs are not left out, and a missing one is known before any weights are
  // read.
  fs::remove(model / "tokenizer.json");
  fs::create_symlink("../outside", model / "tokenizer.json");
  const auto unread = [](CompactStep, uint64_t, uint64_t) { ADD_FAILURE(); };
  const fs::path none = scratch.path() / "none";
  const auto refused = [&] {
    return error_of(
        [&] { compact_model(read_config(model), Checkpoint::open(model), none, unread); });
  };
  EXPECT_TRUE(contains(refused(), "found a link to"));
  fs::remove(model / "tokenizer.json");
  fs::create_symlink("tokenizer.json", model / "tokenizer.json");
  EXPECT_TRUE(contains(refused(), "Too many levels"));
  EXPECT_FALSE(fs::exists(none));
}

TEST(CompactModel, CopiesTheFilesThatASnapshotLinksTo) {
  const ScratchFolder scratch;
  const fs::path repository = scratch.path() / "models--org--name";
  const fs::path snapshot = repository / "snapshots" / "abc";
  fs::create_directories(snapshot);
  fs::copy(kTiny, repository / "blobs");
  for (const fs::directory_entry& entry : fs::directory_iterator(repository / "blobs")) {
    const fs::path name = entry.path().filename();
    fs::create_symlink("../../blobs" / name, snapshot / name);
  }
  const fs::path out = scratch.path() / "out";
  EXPECT_EQ(left_out(compact(snapshot, out)), std::vector<std::string>());
  EXPECT_EQ(expect_same_weights(kTiny, out), 6 * 8 * 3);
  for (const char* name : {"config.json", "tokenizer.json", "reference.json"}) {
    EXPECT_FALSE(fs::is_symlink(out / name)) << name;
    EXPECT_EQ(content_of(out / name), content_of(kTiny / name)) << name;
  }
}

TEST(CompactModel, RefusesWhatWouldNotChange) {
  const ScratchFolder scratch;
  const fs::path out = scratch.path() / "out";
  compact(kTiny, scratch.path() / "compact");
  EXPECT_EQ(kind_of([&] { compact(scratch.path() / "compact", out); }), ErrorKind::usage);
  const fs::path small = fs::path(KLOTSKI_TEST_DATA) / "models" / "qwen3_moe";
  EXPECT_EQ(kind_of([&] { compact(small, out); }), ErrorKind::usage);
  const fs::path wild = scratch.path() / "wild";
  write_changed(
      wild, [](NewTensor&) {},
      [](const NewTensor&, std::span<std::byte> bytes) {
        for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 41);
      });
  EXPECT_EQ(kind_of([&] { compact(wild, out); }), ErrorKind::usage);
  EXPECT_EQ(kind_of([&] { compact(kTiny, scratch.path() / "compact"); }), ErrorKind::usage);
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace klotski
