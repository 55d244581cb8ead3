#include "model/quantized_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>

#include "base/folder.h"
#include "model/config.h"
#include "model/new_weights.h"
#include "model/unit_layout.h"
#include "tensor/hqq.h"
#include "tensor/testing.h"
#include "weights/checkpoint.h"
#include "weights/testing.h"

namespace klotski {
namespace {

using namespace testing_files;
namespace fs = std::filesystem;

const fs::path kFixture = fs::path(KLOTSKI_TEST_DATA) / "models" / "mixtral";
constexpr int64_t kExpertMatrices = 3 * 8 * 3;
constexpr uint64_t kSmallShards = 80'000;

void ignore_progress(uint64_t done, uint64_t total, uint64_t kept) {
  EXPECT_LE(done, total);
  EXPECT_LE(kept, done);
}

QuantizeReport quantize(const fs::path& model, const fs::path& out,
                        const QuantizeSettings& settings = {},
                        const QuantizeProgress& progress = ignore_progress,
                        uint64_t shard = kQuantizedShardBytes) {
  return quantize_model(read_config(model), Checkpoint::open(model), out, settings, progress,
                        shard);
}

std::vector<float> numbers_of(const Checkpoint& checkpoint, const std::string& name, DType dtype,
                              const Shape& shape) {
  const TensorEntry& entry = checkpoint.require(name);
  std::vector<std::byte> bytes(entry.bytes);
  checkpoint.read(entry, bytes);
  if (is_packed(dtype)) {
    return testing_formats::expanded({.data = bytes.data(), .dtype = dtype, .shape = shape});
  }
  std::vector<float> numbers;
  for (size_t at = 0; at < bytes.size(); at += 2) {
    uint16_t bits = 0;
    std::memcpy(&bits, &bytes[at], sizeof(bits));
    numbers.push_back(bf16_to_float(bits));
  }
  return numbers;
}

double relative_error(const std::vector<float>& before, const std::vector<float>& after) {
  SquaredErrors sums;
  for (size_t i = 0; i < before.size(); ++i) {
    sums.add({std::pow(double{after[i]} - double{before[i]}, 2), std::pow(double{before[i]}, 2)});
  }
  return sums.relative();
}

std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename()] = content_of(entry.path());
  }
  return files;
}

TEST(QuantizedModel, ExpertsAreQuantisedAndTheRestKeepsItsBytes) {
  const ScratchFolder scratch;
  const fs::path out = scratch.path() / "out";
  const QuantizeReport report = quantize(kFixture, out);
  EXPECT_EQ(report.folder, out);
  EXPECT_EQ(report.counts.quantized, kExpertMatrices);
  EXPECT_EQ(report.counts.left(), 0);
  EXPECT_EQ(report.bytes_kept, 0u);
  EXPECT_TRUE(report.not_copied.empty());
  const Checkpoint plain = Checkpoint::open(kFixture);
  const Checkpoint made = Checkpoint::open(out);
  EXPECT_EQ(made.total_bytes(), report.bytes_after);
  const QuantizationRecord record = read_quantization_record(out);
  EXPECT_EQ(record.errors.size(), static_cast<size_t>(kExpertMatrices));
  int64_t quantised = 0;
  for (const TensorEntry& entry : plain.tensors()) {
    const DType type = made.find(entry.name) != nullptr ? entry.dtype : DType::HQQ4_64;
    const bool packed = is_packed(type);
    quantised += packed ? 1 : 0;
    EXPECT_EQ(packed, contains(entry.name, ".experts.")) << entry.name;
    const std::string name = entry.name + (packed ? ".hqq4_64" : "");
    const double error = relative_error(numbers_of(plain, entry.name, entry.dtype, entry.shape),
                                        numbers_of(made, name, type, entry.shape));
    EXPECT_LT(error, packed ? 0.12 : 1e-30) << entry.name;
    if (packed) {
      EXPECT_NEAR(error, record.errors.at(entry.name), 1e-9);
    }
  }
  EXPECT_EQ(quantised, kExpertMatrices);
  EXPECT_LE(report.errors.mean(), report.errors.worst);
  EXPECT_LT(report.errors.worst, 0.12);
  const ModelDescription description = read_config(out);
  const UnitLayouts layouts(description, made);
  for (const WeightUnit& unit : units_of(description, UnitKind::expert)) {
    EXPECT_FALSE(layouts.of(unit).must_settle()) << format_unit(unit);
  }
  EXPECT_TRUE(layouts.experts_can_be_cut());
  EXPECT_EQ(content_of(out / "config.json"), content_of(kFixture / "config.json"));
  EXPECT_FALSE(has_entry(out, ".klotski-quantize.json"));
  fs::remove_all(out);
  EXPECT_TRUE(has_nothing(scratch.path()));
}

TEST(QuantizedModel, ThreeBitsAreOfExpertsAlone) {
  const ScratchFolder scratch;
  const fs::path out = scratch.path() / "out";
  const QuantizeReport report =
      quantize(kFixture, out, {.bits = 3, .group = 128, .attention = true});
  EXPECT_EQ(report.counts.quantized, kExpertMatrices + 3 * 4);
  const Checkpoint made = Checkpoint::open(out);
  const UnitLayouts layouts(read_config(out), made);
  for (const auto& [unit, layout] : layouts.all()) {
    for (const PlacedTensor& tensor : layout.tensors) {
      if (unit.kind == UnitKind::expert) {
        EXPECT_EQ(tensor.dtype, DType::HQQ3_128);
      } else if (unit.kind == UnitKind::attention && tensor.shape.size() == 2) {
        EXPECT_EQ(tensor.dtype, DType::HQQ4_128);
      } else {
        EXPECT_EQ(tensor.dtype, DType::BF16);
      }
    }
  }
}

TEST(QuantizedModel, AttentionCanFollowLater) {
  const ScratchFolder scratch;
  const fs::path first = scratch.path() / "first";
  quantize(kFixture, first);
  EXPECT_EQ(kind_of([&] { quantize(first, scratch.path() / "again"); }), ErrorKind::usage);
  const fs::path second = scratch.path() / "second";
  const QuantizeReport report = quantize(first, second, {.attention = true});
  EXPECT_EQ(report.counts.quantized, 3 * 4);
  EXPECT_EQ(report.counts.packed_before, kExpertMatrices);
  EXPECT_EQ(why_left(report.counts), "72 packed already");
  quantize(kFixture, scratch.path() / "both", {.attention = true});
  EXPECT_EQ(read_quantization_record(second).errors,
            read_quantization_record(scratch.path() / "both").errors);
}

// Experts of a layer in one tensor, gate and up too, as some checkpoints have them.
TEST(QuantizedModel, FusedExpertsAreQuantisedRowByRow) {
  const ScratchFolder scratch;
  const fs::path model = scratch.path() / "model";
  fs::create_directory(model);
  fs::copy_file(kFixture / "config.json", model / "config.json");
  const Checkpoint plain = Checkpoint::open(kFixture);
  ModelDescription description = read_config(kFixture);
  description.tensor_names.insert(description.tensor_names.begin(),
                                  {{Role::expert_gate, "fused.{layer}.gate_up"},
                                   {Role::expert_up, "fused.{layer}.gate_up"},
                                   {Role::expert_down, "fused.{layer}.down"}});
  std::vector<NewTensor> tensors;
  for (const TensorEntry& entry : plain.tensors()) {
    if (!contains(entry.name, ".experts.")) {
      tensors.push_back({entry.name, entry.dtype, entry.shape});
    }
  }
  for (int layer = 0; layer < 3; ++layer) {
    tensors.push_back({fmt::format("fused.{}.gate_up", layer), DType::BF16, {8, 2 * 128, 64}});
    tensors.push_back({fmt::format("fused.{}.down", layer), DType::BF16, {8, 64, 128}});
  }
  write_checkpoint(
      model, tensors,
      [&](size_t tensor, uint64_t offset, std::span<std::byte> out) {
        for (size_t i = 0; i < out.size(); i += 2) {  // numbers from 1/2 to 1, and negative ones
          const uint64_t mixed = (tensor + 1) * 0x9E3779B97F4A7C15u * (offset + i + 3);
          const auto bits = static_cast<uint16_t>(0x3F00 | (mixed >> 40 & 0x807F));
          std::memcpy(&out[i], &bits, sizeof(bits));
        }
      },
      [](uint64_t) {});
  const fs::path out = scratch.path() / "out";
  const Checkpoint before = Checkpoint::open(model);
  EXPECT_EQ(quantize_model(description, before, out, {}, ignore_progress).counts.quantized, 3 * 2);
  const Checkpoint made = Checkpoint::open(out);
  EXPECT_EQ(made.require("fused.1.gate_up.hqq4_64").shape, (Shape{8, 256, 48}));
  const UnitLayouts layouts(description, made);  // it can be read
  for (const PlacedTensor& tensor :
       layouts.of(expert_unit(description, LayerId(1), ExpertId(2))).tensors) {
    EXPECT_EQ(tensor.dtype, DType::HQQ4_64);
  }
  EXPECT_LT(relative_error(numbers_of(before, "fused.1.down", DType::BF16, {}),
                           numbers_of(made, "fused.1.down.hqq4_64", DType::HQQ4_64, {8 * 64, 128})),
            0.12);
}

struct Interrupted {};

TEST(QuantizedModel, AnInterruptedRunGoesOnAndGivesTheSameBytes) {
  const ScratchFolder scratch;
  const fs::path whole = scratch.path() / "whole";
  EXPECT_GT(quantize(kFixture, whole, {}, ignore_progress, kSmallShards).weight_files, 4u);
  const fs::path out = scratch.path() / "out";
  const fs::path hidden = scratch.path() / ".out.klotski-partial";
  const std::string first_shard = contents(whole).lower_bound("model-00001")->first;
  uint64_t kept = 0;
  for (int attempt = 1; attempt <= 3; ++attempt) {
    const auto stop = [&](uint64_t done, uint64_t total, uint64_t) {
      if (done > total * static_cast<uint64_t>(attempt) / 4) throw Interrupted();
    };
    EXPECT_THROW(quantize(kFixture, out, {}, stop, kSmallShards), Interrupted);
    EXPECT_FALSE(fs::exists(out));
    if (attempt > 1) {
      EXPECT_TRUE(has_entry(hidden, first_shard)) << attempt;
    }
  }
  const QuantizeReport report = quantize(
      kFixture, out, {}, [&](uint64_t, uint64_t, uint64_t from_before) { kept = from_before; },
      kSmallShards);
  EXPECT_GT(report.bytes_kept, report.bytes_after / 4);
  EXPECT_EQ(kept, report.bytes_kept);
  EXPECT_EQ(contents(out), contents(whole));
  EXPECT_FALSE(fs::exists(hidden));
}

TEST(QuantizedModel, FilesOfOtherSettingsAreNotUsed) {
  const ScratchFolder scratch;
  const auto stop = [](uint64_t done, uint64_t total, uint64_t) {
    if (done > total / 2) throw Interrupted();
  };
  const fs::path out = scratch.path() / "out";
  EXPECT_THROW(quantize(kFixture, out, {}, stop, kSmallShards), Interrupted);
  const QuantizeReport other = quantize(kFixture, out, {.bits = 3}, ignore_progress, kSmallShards);
  EXPECT_EQ(other.bytes_kept, 0u);
  // A complete file that is not the one it should be is written again.
  const fs::path next = scratch.path() / "next";
  EXPECT_THROW(quantize(kFixture, next, {.bits = 3}, stop, kSmallShards), Interrupted);
  const fs::path hidden = scratch.path() / ".next.klotski-partial";
  for (const fs::directory_entry& entry : fs::directory_iterator(hidden)) {
    if (entry.path().extension() == ".safetensors") fs::resize_file(entry.path(), 100);
  }
  EXPECT_EQ(quantize(kFixture, next, {.bits = 3}, ignore_progress, kSmallShards).bytes_kept, 0u);
  EXPECT_EQ(contents(next), contents(out));
}

TEST(QuantizedModel, Refusals) {
  const ScratchFolder scratch;
  const fs::path full = scratch.path() / "full";
  write_file(full / "a", "theirs");
  EXPECT_EQ(kind_of([&] { quantize(kFixture, full); }), ErrorKind::usage);
  EXPECT_EQ(content_of(full / "a"), "theirs");
  // A number that is not finite.
  const fs::path model = scratch.path() / "model";
  fs::copy(kFixture, model);
  const Checkpoint checkpoint = Checkpoint::open(model);
  const TensorEntry& entry =
      checkpoint.require("model.layers.1.block_sparse_moe.experts.2.w3.weight");
  const fs::path file = checkpoint.file(entry.shard)->path();
  std::string bytes = content_of(file);
  bytes[entry.offset] = static_cast<char>(0x80);
  bytes[entry.offset + 1] = 0x7F;
  write_file(file, bytes);
  const std::string message = error_of([&] { quantize(model, scratch.path() / "out"); });
  EXPECT_TRUE(contains(message, entry.name) && contains(message, "row 0")) << message;
}

}  // namespace
}  // namespace klotski
