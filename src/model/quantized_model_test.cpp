#include "model/quantized_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>

#include "base/folder.h"
#include "model/config.h"
#include "model/new_weights.h"
#include "model/stored_tensors.h"
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
                        uint64_t shard = kMaxShardBytes) {
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
    EXPECT_EQ(stored_type(made.require(name)), type);
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

struct Interrupted {};

TEST(QuantizedModel, AnInterruptedRunGoesOnAndGivesTheSameBytes) {
  const ScratchFolder scratch;
  const fs::path whole = scratch.path() / "whole";
  EXPECT_GT(quantize(kFixture, whole, {}, ignore_progress, kSmallShards).weight_files, 4u);
  const fs::path out = scratch.path() / "out";
  const fs::path hidden = scratch.path() / ".out.klotski-partial";
  uint64_t kept = 0;
  for (int attempt = 1; attempt <= 3; ++attempt) {
    const auto stop = [&](uint64_t done, uint64_t total, uint64_t) {
      if (done > total * static_cast<uint64_t>(attempt) / 4) throw Interrupted();
    };
    EXPECT_THROW(quantize(kFixture, out, {}, stop, kSmallShards), Interrupted);
    EXPECT_FALSE(fs::exists(out));
    EXPECT_TRUE(has_entry(hidden, "model-00001-of-00006.safetensors") || fs::is_directory(hidden));
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
