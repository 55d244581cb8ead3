#include "synth/synthetic_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "kernels/reference/weight_row.h"
#include "kernels/testing.h"
#include "model/stored_tensors.h"
#include "model/unit_layout.h"
#include "synth/testing.h"
#include "tensor/compact.h"
#include "tensor/dtype.h"
#include "tensor/testing.h"

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

// Compares every tensor of every unit, made in memory and read from the model's files.
void expect_same_weights(const SyntheticModel& made, const fs::path& folder) {
  const Checkpoint written = Checkpoint::open(folder);
  EXPECT_EQ(made.checkpoint.total_bytes(), written.total_bytes());
  ASSERT_EQ(made.checkpoint.tensors().size(), written.tensors().size());
  const UnitLayouts layouts(made.description, made.checkpoint);
  for (const WeightUnit& unit : all_units(made.description)) {
    const UnitLayout& layout = layouts.of(unit);
    EXPECT_FALSE(layout.must_settle());
    std::vector<std::byte> buffer(layout.buffer_bytes);
    made.source->read(unit, layout, buffer, cpu_processor());
    for (const TensorSpec& spec : unit_tensors(made.description, unit)) {
      const PlacedTensor& tensor = tensor_of(layout, spec.role);
      const NewTensor stored = tensor_in_file(spec, tensor.dtype);
      const TensorEntry& entry = written.require(stored.name);
      ASSERT_EQ(layout.bytes_of(tensor), entry.bytes) << spec.name;
      ASSERT_EQ(stored.dtype, entry.dtype) << spec.name;
      ASSERT_EQ(stored.shape, entry.shape) << spec.name;
      const uint64_t arrives_at = layout.numbers_of(tensor).arrives_at;
      EXPECT_EQ(arrives_at % Checkpoint::kDescribedAlignment, 0u) << spec.name;
      std::vector<std::byte> expected(entry.bytes);
      written.read(entry, expected);
      const auto found = buffer.begin() + static_cast<std::ptrdiff_t>(arrives_at);
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
        "olmoe-1b-7b,L=2,H=64,F=32,E=8,K=4,vocab=500", "L=1,H=1024,F=700,E=2,K=1,vocab=5000",
        "L=2,H=1024,F=300,E=2,K=1,compact",
        "qwen1.5-moe-a2.7b,L=2,H=512,F=192,E=3,K=2,shared=256,vocab=400,compact"}) {
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

// The bytes of a unit, tensor by tensor in the order of the specs, compact ones expanded.
std::vector<std::vector<std::byte>> plain_tensors(const SyntheticModel& made,
                                                  const WeightUnit& unit, int64_t* compact) {
  const UnitLayout layout = layout_unit(made.description, made.checkpoint, unit);
  std::vector<std::byte> buffer(layout.buffer_bytes);
  made.source->read(unit, layout, buffer, cpu_processor());
  std::vector<std::vector<std::byte>> tensors;
  for (const TensorSpec& spec : unit_tensors(made.description, unit)) {
    const PlacedTensor& tensor = tensor_of(layout, spec.role);
    const PlacedPart& part = layout.numbers_of(tensor);
    const std::byte* data = buffer.data() + part.arrives_at;
    if (!is_packed(tensor.dtype)) {
      tensors.emplace_back(data, data + part.bytes);
      continue;
    }
    ++*compact;
    const auto columns = static_cast<size_t>(spec.shape[1]);
    std::vector<uint16_t> numbers(static_cast<size_t>(spec.shape[0]) * columns);
    for (int64_t row = 0; row < spec.shape[0]; ++row) {
      expand_row(data + row * compact_row_bytes(spec.shape[1]), spec.shape[1], 0,
                 std::span(numbers).subspan(static_cast<size_t>(row) * columns, columns));
    }
    const auto bytes = std::as_bytes(std::span(numbers));
    tensors.emplace_back(bytes.begin(), bytes.end());
  }
  return tensors;
}

TEST(SyntheticModel, CompactWeightsAreThoseOfThePlainModel) {
  const std::string shape = "L=2,H=1024,F=300,E=3,K=1";
  const auto made_as = [&](const std::string& as, DType dtype) {
    return synthetic_model(
        {.shape = as, .folder = {}, .seed = 6, .share = {}, .dtype = dtype, .tokenizer = {}});
  };
  const SyntheticModel plain = made_as(shape, DType::BF16);
  const SyntheticModel compact = made_as(shape + ",compact", DType::BF16);
  const SyntheticModel by_type = made_as(shape, kCompactType);
  int64_t of_plain = 0, of_compact = 0;
  for (const WeightUnit& unit : all_units(plain.description)) {
    const auto expected = plain_tensors(plain, unit, &of_plain);
    EXPECT_EQ(expected, plain_tensors(compact, unit, &of_compact)) << format_unit(unit);
    EXPECT_EQ(expected, plain_tensors(by_type, unit, &of_compact)) << format_unit(unit);
  }
  EXPECT_EQ(of_plain, 0);
  EXPECT_EQ(of_compact, 2 * 2 * 3 * 3);
  EXPECT_LT(compact.checkpoint.total_bytes(), plain.checkpoint.total_bytes());
  EXPECT_EQ(content_of(compact.folder / "config.json"), content_of(plain.folder / "config.json"));
}

// Quantised experts are as large as plain ones, but for a scale that is a power of two, and lie
// beside other weights in BF16.
TEST(SyntheticModel, ExpertsOfFourBitsAreOfTheSizeOfPlainOnes) {
  const std::string shape = "L=1,H=96,F=64,E=2,K=1";
  const auto made_as = [](const std::string& as) {
    return synthetic_model(
        {.shape = as, .folder = {}, .seed = 3, .share = {}, .dtype = DType::BF16, .tokenizer = {}});
  };
  const SyntheticModel plain = made_as(shape);
  const SyntheticModel packed = made_as(shape + ",mxfp4");
  const WeightUnit unit = expert_unit(plain.description, LayerId(0), ExpertId(1));
  const auto numbers_of = [&](const SyntheticModel& made) {
    const UnitLayout layout = layout_unit(made.description, made.checkpoint, unit);
    std::vector<std::byte> buffer(layout.buffer_bytes);
    made.source->read(unit, layout, buffer, cpu_processor());
    const PlacedTensor& tensor = tensor_of(layout, Role::expert_up);
    const TensorView view{.data = buffer.data() + layout.numbers_of(tensor).arrives_at,
                          .dtype = tensor.dtype,
                          .shape = tensor.shape};
    if (is_packed(tensor.dtype)) return testing_formats::expanded(view);
    std::vector<float> numbers;
    for (int64_t i = 0; i < view.shape[0] * view.shape[1]; ++i) {
      numbers.push_back(reference::load_element(view, i));
    }
    return numbers;
  };
  const auto size_of = [](const std::vector<float>& numbers) {
    double squares = 0.0;
    for (const float number : numbers) squares += double{number} * number;
    return std::sqrt(squares / static_cast<double>(numbers.size()));
  };
  const std::vector<float> found = numbers_of(packed);
  EXPECT_EQ(std::set<float>(found.begin(), found.end()).size(), 15u) << "one zero for two codes";
  EXPECT_NEAR(std::log2(size_of(found) / size_of(numbers_of(plain))), 0.0, 0.55);
  EXPECT_EQ(
      tensor_of(layout_unit(packed.description, packed.checkpoint, attention_unit(LayerId(0))),
                Role::query)
          .dtype,
      DType::BF16);
}

TEST(SyntheticModel, StaysPlainWhereThatTakesFewerBytes) {
  const SyntheticModel made = synthetic_model(
      {.shape = "L=1,H=64,F=128,E=2,K=1,compact", .folder = {}, .share = {}, .tokenizer = {}});
  const UnitLayout layout = layout_unit(made.description, made.checkpoint,
                                        expert_unit(made.description, LayerId(0), ExpertId(1)));
  EXPECT_EQ(tensor_of(layout, Role::expert_gate).dtype, DType::BF16);  // 64 columns
  EXPECT_EQ(tensor_of(layout, Role::expert_up).dtype, DType::BF16);
  EXPECT_EQ(tensor_of(layout, Role::expert_down).dtype, kCompactType);  // 128
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
  source->read(model_unit(), layout, one, cpu_processor());
  other.source->read(model_unit(), layout, two, cpu_processor());
  EXPECT_EQ(one, two);
  small(2).source->read(model_unit(), layout, two, cpu_processor());
  EXPECT_NE(one, two);
}

TEST(SyntheticModel, RefusesBuffersAndLayoutsOfOthers) {
  const SyntheticModel made = small();
  const UnitLayouts layouts(made.description, made.checkpoint);
  const WeightUnit unit = attention_unit(LayerId(1));
  UnitLayout layout = layouts.of(unit);
  std::vector<std::byte> buffer(layout.buffer_bytes);
  const auto refused = [&](const UnitLayout& bad, size_t bytes) {
    return kind_of(
        [&] { made.source->read(unit, bad, std::span(buffer).first(bytes), cpu_processor()); });
  };
  EXPECT_EQ(refused(layout, layout.parts.back().arrives_at), ErrorKind::internal);
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
  for (const char* shape : {"compact", ",compact", "L=1,compact,H=64,F=8,E=4,K=2",
                            "L=1,H=64,F=8,E=4,K=2,compact,compact"}) {
    EXPECT_EQ(kind_of([&] { make(shape); }), ErrorKind::usage) << shape;
  }
  EXPECT_EQ(kind_of([] {
              synthetic_model({.shape = "L=1,H=64,F=8,E=4,K=2,compact",
                               .folder = {},
                               .share = {},
                               .dtype = DType::F16,
                               .tokenizer = {}});
            }),
            ErrorKind::usage);
}

}  // namespace
}  // namespace klotski
