#include "synth/synthetic_model.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "model/unit_layout.h"
#include "synth/testing.h"
#include "tensor/dtype.h"

namespace klotski {
namespace {

using namespace testing_synth;
namespace fs = std::filesystem;

std::vector<WeightUnit> all_units(const ModelDescription& model) {
  std::vector<WeightUnit> units;
  for (size_t kind = 0; kind < kUnitKinds; ++kind) {
    for (const WeightUnit& unit : units_of(model, static_cast<UnitKind>(kind))) {
      units.push_back(unit);
    }
  }
  return units;
}

const PlacedTensor& tensor_of(const UnitLayout& layout, Role role) {
  return *std::find_if(layout.tensors.begin(), layout.tensors.end(),
                       [&](const PlacedTensor& tensor) { return tensor.role == role; });
}

// Every tensor of every unit, made in memory and read from the files of the same model.
void expect_same_weights(const SyntheticModel& made, const fs::path& folder) {
  const Checkpoint written = Checkpoint::open(folder);
  EXPECT_EQ(made.checkpoint.total_bytes(), written.total_bytes());
  ASSERT_EQ(made.checkpoint.tensors().size(), written.tensors().size());
  const UnitLayouts layouts(made.description, made.checkpoint);
  for (const WeightUnit& unit : all_units(made.description)) {
    const UnitLayout& layout = layouts.of(unit);
    EXPECT_FALSE(layout.must_settle());
    std::vector<std::byte> buffer(layout.buffer_bytes);
    made.source->read(unit, layout, buffer);
    for (const TensorSpec& spec : unit_tensors(made.description, unit)) {
      const TensorEntry& entry = written.require(spec.name);
      const PlacedTensor& tensor = tensor_of(layout, spec.role);
      ASSERT_EQ(tensor.bytes, entry.bytes) << spec.name;
      ASSERT_EQ(tensor.dtype, entry.dtype) << spec.name;
      EXPECT_EQ(tensor.arrives_at % Checkpoint::kDescribedAlignment, 0u) << spec.name;
      std::vector<std::byte> expected(entry.bytes);
      written.read(entry, expected);
      const auto found = buffer.begin() + static_cast<std::ptrdiff_t>(tensor.arrives_at);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), found)) << spec.name;
    }
  }
}

void expect_same_files(const fs::path& made, const fs::path& written) {
  size_t files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(written)) {
    if (entry.path().extension() == ".safetensors") continue;
    EXPECT_EQ(content_of(made / entry.path().filename()), content_of(entry.path()));
    ++files;
  }
  EXPECT_GE(files, 4u);
  for (const fs::directory_entry& entry : fs::directory_iterator(made)) {
    EXPECT_TRUE(fs::exists(written / entry.path().filename())) << entry.path();
  }
}

TEST(SyntheticModel, IsWhatSynthesiseWrites) {
  for (const char* shape :
       {"mixtral-8x7b,L=2,H=64,F=96,E=4,K=1,vocab=600",
        "qwen3-30b-a3b,L=2,H=72,F=32,E=16,K=8,head_dim=32,vocab=2000",
        "qwen1.5-moe-a2.7b,L=2,H=64,F=24,E=6,K=3,shared=40,vocab=400",
        "olmoe-1b-7b,L=2,H=64,F=32,E=8,K=4,vocab=500", "L=1,H=1024,F=700,E=2,K=1,vocab=5000"}) {
    SCOPED_TRACE(shape);
    const ScratchFolder scratch;
    const SynthOptions options{
        .shape = shape, .folder = scratch.path() / "m", .seed = 11, .share = {}, .tokenizer = {}};
    synthesise(options, [](uint64_t, uint64_t) {});
    const SyntheticModel made = synthetic_model(options);
    expect_same_weights(made, options.folder);
    expect_same_files(made.folder, options.folder);
    EXPECT_EQ(made.folder.filename(), shape);
    EXPECT_EQ(made.checkpoint.shard_count(), 0u);
  }
}

TEST(SyntheticModel, OfEveryTypeAndWithAnothersTokenizer) {
  for (const DType dtype : {DType::F16, DType::F32}) {
    const ScratchFolder scratch;
    const SynthOptions options{.shape = "L=1,H=64,F=96,E=4,K=2",
                               .folder = scratch.path() / "m",
                               .seed = 2,
                               .share = {},
                               .dtype = dtype,
                               .tokenizer = fs::path(KLOTSKI_MODELS) / "tiny-mixtral"};
    synthesise(options, [](uint64_t, uint64_t) {});
    const SyntheticModel made = synthetic_model(options);
    expect_same_weights(made, options.folder);
    expect_same_files(made.folder, options.folder);
  }
}

SyntheticModel small(uint64_t seed = 0) {
  return synthetic_model(
      {.shape = "L=2,H=64,F=96,E=4,K=2", .folder = {}, .seed = seed, .share = {}, .tokenizer = {}});
}

TEST(SyntheticModel, ItsFolderLivesAsLongAsItsHome) {
  fs::path folder;
  std::shared_ptr<const TemporaryFolder> home;
  {
    const SyntheticModel made = small();
    folder = made.folder;
    home = made.home;
  }
  EXPECT_TRUE(fs::exists(folder / "config.json"));
  home.reset();
  EXPECT_FALSE(fs::exists(folder));
}

TEST(SyntheticModel, ItsSourceOutlivesIt) {
  const SyntheticModel other = small(1);
  const UnitLayouts layouts(other.description, other.checkpoint);
  const UnitLayout& layout = layouts.of(model_unit());
  std::vector<std::byte> one(layout.buffer_bytes), two(layout.buffer_bytes);
  const std::shared_ptr<UnitSource> source = small(1).source;
  source->read(model_unit(), layout, one);
  other.source->read(model_unit(), layout, two);
  EXPECT_EQ(one, two);
  small(2).source->read(model_unit(), layout, two);
  EXPECT_NE(one, two);
}

TEST(SyntheticModel, RefusesBuffersAndLayoutsOfOthers) {
  const SyntheticModel made = small();
  const UnitLayouts layouts(made.description, made.checkpoint);
  const WeightUnit unit = attention_unit(LayerId(1));
  UnitLayout layout = layouts.of(unit);
  std::vector<std::byte> buffer(layout.buffer_bytes);
  const auto refused = [&](const UnitLayout& bad, size_t bytes) {
    return kind_of([&] { made.source->read(unit, bad, std::span(buffer).first(bytes)); });
  };
  EXPECT_EQ(refused(layout, layout.tensors.back().arrives_at), ErrorKind::internal);
  EXPECT_EQ(refused(layouts.of(gate_unit(LayerId(1))), buffer.size()), ErrorKind::internal);
  layout.tensors.front().dtype = DType::F16;
  EXPECT_EQ(refused(layout, buffer.size()), ErrorKind::internal);
}

TEST(SyntheticModel, RefusesShapesThatCannotBe) {
  const auto make = [](const std::string& shape) {
    synthetic_model({.shape = shape, .folder = {}, .share = {}, .tokenizer = {}});
  };
  EXPECT_EQ(kind_of([&] { make("nothing"); }), ErrorKind::usage);
  EXPECT_EQ(kind_of([&] { make("L=1,H=64,F=8,E=4,K=2,vocab=100"); }), ErrorKind::usage);
  EXPECT_EQ(kind_of([&] { make("L=1000,H=64,F=8,E=4096,K=2"); }), ErrorKind::usage);
}

}  // namespace
}  // namespace klotski
