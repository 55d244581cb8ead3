#include "model/unit_layout.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "memory/alignment.h"
#include "model/config.h"
#include "weights/testing.h"

namespace klotski {
namespace {

std::string test_model(const std::string& name) {
  return std::string(KLOTSKI_TEST_DATA) + "/models/" + name;
}

// Reads a unit by its layout with plain reads and moves what must be moved.
std::vector<std::byte> fill(const Checkpoint& checkpoint, const UnitLayout& layout) {
  std::vector<std::byte> buffer(layout.buffer_bytes, std::byte{0xAA});
  for (const UnitRead& read : layout.reads) {
    const auto file = checkpoint.file(read.shard);
    const uint64_t bytes = std::min(read.bytes, file->size() - read.offset);
    file->read_at(read.offset, std::span(buffer).subspan(read.at, bytes));
  }
  for (const PlacedTensor& tensor : layout.tensors) {
    std::memmove(&buffer[tensor.at], &buffer[tensor.arrives_at], tensor.bytes);
  }
  return buffer;
}

// Every tensor of every unit arrives whole, aligned, by aligned reads within the buffer.
void expect_sound(const std::string& folder) {
  const ModelDescription model = read_config(folder);
  const Checkpoint checkpoint = Checkpoint::open(folder);
  const UnitLayouts layouts(model, checkpoint);
  for (size_t k = 0; k < kUnitKinds; ++k) {
    for (const WeightUnit& unit : units_of(model, static_cast<UnitKind>(k))) {
      const UnitLayout& layout = layouts.of(unit);
      ASSERT_LE(layout.buffer_bytes, layouts.buffer_bytes(unit.kind));
      for (const UnitRead& read : layout.reads) {
        ASSERT_TRUE(is_aligned(read.offset) && is_aligned(read.bytes) && is_aligned(read.at));
        ASSERT_LE(read.at + read.bytes, layout.buffer_bytes);
      }
      const std::vector<std::byte> buffer = fill(checkpoint, layout);
      std::vector<TensorSpec> specs = unit_tensors(model, unit);
      ASSERT_EQ(specs.size(), layout.tensors.size());
      for (const TensorSpec& spec : specs) {
        const auto placed =
            std::find_if(layout.tensors.begin(), layout.tensors.end(),
                         [&](const PlacedTensor& tensor) { return tensor.role == spec.role; });
        ASSERT_NE(placed, layout.tensors.end());
        ASSERT_EQ(placed->at % static_cast<uint64_t>(bytes_per_element(placed->dtype)), 0u);
        const TensorEntry& entry = checkpoint.require(spec.name);
        std::vector<std::byte> expected(entry.bytes);
        checkpoint.read(entry, expected);
        ASSERT_EQ(0, std::memcmp(expected.data(), &buffer[placed->at], expected.size()))
            << spec.name;
      }
    }
  }
}

TEST(UnitLayout, BringsEveryTensorOfEveryFamily) {
  for (const char* name : {"mixtral", "qwen2_moe", "qwen3_moe", "olmoe"}) {
    SCOPED_TRACE(name);
    expect_sound(test_model(name));
  }
}

// A copy of a fixture that can be changed.
class ChangedModel : public ::testing::Test {
 protected:
  ChangedModel()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                ("changed" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(test_model("qwen3_moe"), folder_);
  }
  ~ChangedModel() override { std::filesystem::remove_all(folder_); }

  std::string error_after(const std::string& field, const Json& value) {
    Json config = parse_json(read_text_file(folder_ / "config.json", 1 << 20), "config.json");
    config[field] = value;
    std::ofstream(folder_ / "config.json") << config.dump();
    try {
      UnitLayouts(read_config(folder_), Checkpoint::open(folder_));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_model);
      return error.what();
    }
    return "";
  }

  std::filesystem::path folder_;
};

TEST_F(ChangedModel, ShapesThatContradictTheConfigAreNamed) {
  EXPECT_NE(error_after("vocab_size", 300).find("model.embed_tokens.weight"), std::string::npos);
}

TEST_F(ChangedModel, MissingTensorsAreNamed) {
  EXPECT_NE(error_after("attention_bias", true).find("q_proj.bias"), std::string::npos);
}

TEST_F(ChangedModel, MoreLayersThanTheFileHasAreNamed) {
  EXPECT_NE(error_after("num_hidden_layers", 4).find("model.layers.3."), std::string::npos);
}

TEST_F(ChangedModel, TensorsThatTheFileDoesNotAlignAreMoved) {
  testing_files::unalign_tensors(folder_ / "model.safetensors");

  expect_sound(folder_.native());
  const UnitLayout layout =
      layout_unit(read_config(folder_), Checkpoint::open(folder_), attention_unit(LayerId(0)));
  EXPECT_TRUE(layout.must_settle());
}

}  // namespace
}  // namespace klotski
