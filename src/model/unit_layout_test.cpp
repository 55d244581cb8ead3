#include "model/unit_layout.h"
#include "weights/checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "memory/alignment.h"
#include "model/config.h"
#include "model/stored_tensors.h"
#include "tensor/compact.h"
#include "weights/checkpoint_writer.h"
#include "weights/testing.h"

namespace klotski {
namespace {

std::string test_model(const std::string& name) {
  return std::string(KLOTSKI_TEST_DATA) + "/models/" + name;
}

// Reads a unit by its layout with plain reads and settles its parts.
std::vector<std::byte> fill(const Checkpoint& checkpoint, const UnitLayout& layout) {
  std::vector<std::byte> buffer(layout.buffer_bytes, std::byte{0xAA});
  for (const UnitRead& read : layout.reads) {
    const auto file = checkpoint.file(read.shard);
    const uint64_t bytes = std::min(read.bytes, file->size() - read.offset);
    file->read_at(read.offset, std::span(buffer).subspan(read.at, bytes));
  }
  settle(layout, buffer.data());
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
        const uint64_t at = layout.numbers_of(*placed).at;
        ASSERT_EQ(at % static_cast<uint64_t>(bytes_per_element(placed->dtype)), 0u);
        const TensorEntry& entry = checkpoint.require(spec.name);
        std::vector<std::byte> expected(entry.bytes);
        checkpoint.read(entry, expected);
        ASSERT_EQ(0, std::memcmp(expected.data(), &buffer[at], expected.size())) << spec.name;
      }
    }
  }
}

TEST(UnitLayout, BringsEveryTensorOfEveryFamily) {
  for (const char* name :
       {"mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v2", "deepseek_v3"}) {
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

  // The error of a checkpoint with the tensors that `change` makes of the fixture's.
  std::string error_with(const std::function<void(std::vector<TensorEntry>&)>& change) {
    std::vector<TensorEntry> tensors = Checkpoint::open(folder_).tensors();
    change(tensors);
    try {
      UnitLayouts(read_config(folder_), Checkpoint::described(folder_, std::move(tensors)));
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

TensorEntry& entry_of(std::vector<TensorEntry>& tensors, const std::string& name) {
  return *std::find_if(tensors.begin(), tensors.end(),
                       [&](const TensorEntry& entry) { return entry.name == name; });
}

const std::string kUp = "model.layers.0.mlp.experts.0.up_proj.weight";  // [64, 64]

constexpr std::string_view kCompactSuffix = ".compact";

void make_compact(TensorEntry& entry) {
  entry.name += kCompactSuffix;
  entry.dtype = DType::U8;
  entry.shape[1] = compact_row_bytes(entry.shape[1]);
}

TEST_F(ChangedModel, ExpertsMayBeCompact) {
  std::vector<TensorEntry> tensors = Checkpoint::open(folder_).tensors();
  make_compact(entry_of(tensors, kUp));
  const Checkpoint checkpoint = Checkpoint::described(folder_, std::move(tensors));
  const ModelDescription model = read_config(folder_);
  const UnitLayout layout =
      layout_unit(model, checkpoint, expert_unit(model, LayerId(0), ExpertId(0)));
  for (const PlacedTensor& tensor : layout.tensors) {
    const bool compact = tensor.role == Role::expert_up;
    EXPECT_EQ(tensor.dtype, compact ? kCompactType : DType::BF16);
    EXPECT_EQ(tensor.shape, (Shape{64, 64}));
    EXPECT_EQ(layout.bytes_of(tensor), compact ? 64u * (32 + 96) : 64u * 64 * 2);
  }
}

TEST_F(ChangedModel, CompactRowsAreMovedToMultiplesOfSixteenBytes) {
  // Eight bytes in front of the expert: aligned for BF16, not for rows that are compact.
  const ModelDescription model = read_config(folder_);
  const Checkpoint original = Checkpoint::open(folder_);
  std::vector<NewTensor> tensors = {{"odd", DType::F32, {2}}};
  for (const TensorEntry& entry : original.tensors()) {
    const bool compact = entry.name == kUp;
    tensors.push_back(compact
                          ? tensor_in_file({Role::expert_up, entry.name, entry.shape}, kCompactType)
                          : NewTensor{entry.name, entry.dtype, entry.shape});
  }
  std::filesystem::remove(folder_ / "model.safetensors");
  write_checkpoint(
      folder_, tensors,
      [](size_t tensor, uint64_t offset, std::span<std::byte> out) {
        for (size_t i = 0; i < out.size(); ++i) {
          out[i] = static_cast<std::byte>(tensor + (offset + i) % 253);
        }
      },
      [](uint64_t) {});
  const Checkpoint checkpoint = Checkpoint::open(folder_);
  const UnitLayout layout =
      layout_unit(model, checkpoint, expert_unit(model, LayerId(0), ExpertId(0)));
  EXPECT_TRUE(layout.must_settle());
  const std::vector<std::byte> buffer = fill(checkpoint, layout);
  for (const PlacedTensor& tensor : layout.tensors) {
    if (tensor.role != Role::expert_up) continue;
    const PlacedPart& part = layout.numbers_of(tensor);
    EXPECT_EQ(part.at % kCompactAlignment, 0u);
    EXPECT_EQ(part.arrives_at % kCompactAlignment, 8u);
    std::vector<std::byte> expected(part.bytes);
    checkpoint.read(checkpoint.require(kUp + std::string(kCompactSuffix)), expected);
    EXPECT_EQ(0, std::memcmp(expected.data(), &buffer[part.at], expected.size()));
  }
}

TEST_F(ChangedModel, OtherCompactTensorsAreRefused) {
  const std::string both = error_with([](std::vector<TensorEntry>& tensors) {
    TensorEntry copy = entry_of(tensors, kUp);
    make_compact(copy);
    tensors.push_back(std::move(copy));
  });
  EXPECT_NE(both.find("expected it once"), std::string::npos) << both;
  const std::string shape = error_with([](std::vector<TensorEntry>& tensors) {
    TensorEntry& entry = entry_of(tensors, kUp);
    make_compact(entry);
    --entry.shape[1];
  });
  EXPECT_NE(shape.find("implies U8 of shape [64, 128], found U8 of shape [64, 127]"),
            std::string::npos)
      << shape;
  const std::string type = error_with([](std::vector<TensorEntry>& tensors) {
    TensorEntry& entry = entry_of(tensors, kUp);
    make_compact(entry);
    entry.dtype = DType::I8;
  });
  EXPECT_NE(type.find("found I8"), std::string::npos) << type;
  const std::string attention = error_with([](std::vector<TensorEntry>& tensors) {
    make_compact(entry_of(tensors, "model.layers.1.self_attn.q_proj.weight"));
  });
  EXPECT_NE(attention.find("only matrices of experts"), std::string::npos) << attention;
  const std::string missing =
      error_with([](std::vector<TensorEntry>& tensors) { entry_of(tensors, kUp).name = "other"; });
  EXPECT_NE(missing.find("expected a tensor '" + kUp), std::string::npos) << missing;
}

}  // namespace
}  // namespace klotski
