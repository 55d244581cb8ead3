// Units whose tensors are slices of larger stored ones, or made of several.

#include <gtest/gtest.h>
#include <optional>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "model/config.h"
#include "model/unit_layout.h"
#include "tensor/testing.h"
#include "weights/checkpoint.h"
#include "weights/checkpoint_writer.h"
#include "weights/testing.h"

namespace klotski {
namespace {

using testing_files::ScratchFolder;

constexpr std::string_view kGateUp = "fused.{layer}.gate_up";
constexpr std::string_view kDown = "fused.{layer}.down";

// A model of the test data that has the tensors of experts under other names.
ModelDescription model_with(std::string_view gate, std::string_view up, std::string_view down,
                            bool interleaved) {
  ModelDescription model = read_config(std::string(KLOTSKI_TEST_DATA) + "/models/qwen3_moe");
  model.tensor_names.insert(model.tensor_names.begin(), {{Role::expert_gate, gate, interleaved},
                                                         {Role::expert_up, up, interleaved},
                                                         {Role::expert_down, down}});
  return model;
}

// Bytes of a file that differ from each other.
std::byte byte_at(size_t tensor, uint64_t offset) {
  return static_cast<std::byte>(17 * tensor + offset % 251 + offset / 251);
}

// Writes tensors, and reads a unit as a run would.
class WrittenTensors {
 public:
  explicit WrittenTensors(const std::vector<NewTensor>& tensors) {
    write_checkpoint(
        home_.path(), tensors,
        [](size_t tensor, uint64_t offset, std::span<std::byte> out) {
          for (size_t i = 0; i < out.size(); ++i) out[i] = byte_at(tensor, offset + i);
        },
        [](uint64_t) {});
    checkpoint_.emplace(Checkpoint::open(home_.path()));
  }
  const Checkpoint& checkpoint() const { return *checkpoint_; }

  std::vector<std::byte> read(const UnitLayout& layout) const {
    std::vector<std::byte> buffer(layout.buffer_bytes);
    for (const UnitRead& read : layout.reads) {
      const auto file = checkpoint_->file(read.shard);
      const uint64_t bytes = std::min(read.bytes, file->size() - read.offset);
      file->read_at(read.offset, std::span(buffer).subspan(read.at, bytes));
    }
    settle(layout, buffer.data());
    return buffer;
  }

 private:
  ScratchFolder home_;
  std::optional<Checkpoint> checkpoint_;
};

const PlacedTensor& tensor_with(const UnitLayout& layout, Role role) {
  return *std::find_if(layout.tensors.begin(), layout.tensors.end(),
                       [&](const PlacedTensor& tensor) { return tensor.role == role; });
}

// Row `row` of a tensor in a unit is bytes `offset` and on of a stored tensor.
void expect_row(const TensorView& view, int64_t row, size_t tensor, uint64_t offset) {
  const std::byte* bytes = view.data + row * view.stride();
  for (int64_t i = 0; i < bytes_per_row(view.dtype, view.columns()); ++i) {
    ASSERT_EQ(bytes[i], byte_at(tensor, offset + static_cast<uint64_t>(i)))
        << "row " << row << ", byte " << i;
  }
}

TEST(FusedLayout, AnExpertIsASliceOfTheTensorsOfItsLayer) {
  for (const bool interleaved : {false, true}) {
    SCOPED_TRACE(interleaved ? "interleaved" : "concatenated");
    const ModelDescription model = model_with(kGateUp, kGateUp, kDown, interleaved);
    const FeedForward& part = model.layer(LayerId(0)).feed_forward;
    const int64_t width = part.width;
    const int64_t hidden = model.hidden;
    const WrittenTensors written(
        {{"fused.0.gate_up", DType::BF16, {part.experts, 2 * width, hidden}},
         {"fused.0.down", DType::BF16, {part.experts, hidden, width}}});
    for (const int64_t e : {int64_t{0}, part.experts - 1}) {
      const UnitLayout layout =
          layout_unit(model, written.checkpoint(), expert_unit(model, LayerId(0), ExpertId(e)));
      const std::vector<std::byte> unit = written.read(layout);
      EXPECT_EQ(layout.own_bytes, static_cast<uint64_t>(3 * width * hidden * 2));
      EXPECT_EQ(layout.parts.size(), interleaved ? 2u : 3u);
      const TensorView gate = layout.view(tensor_with(layout, Role::expert_gate), unit.data());
      const TensorView up = layout.view(tensor_with(layout, Role::expert_up), unit.data());
      const TensorView down = layout.view(tensor_with(layout, Role::expert_down), unit.data());
      EXPECT_FALSE(gate.has_gaps());
      EXPECT_EQ(layout.must_settle(), interleaved);
      const auto first = static_cast<uint64_t>(e * 2 * width * hidden * 2);
      for (const int64_t row : {int64_t{0}, int64_t{5}, width - 1}) {
        const int64_t gate_row = interleaved ? 2 * row : row;
        const int64_t up_row = interleaved ? 2 * row + 1 : width + row;
        expect_row(gate, row, 0, first + static_cast<uint64_t>(gate_row * hidden * 2));
        expect_row(up, row, 0, first + static_cast<uint64_t>(up_row * hidden * 2));
      }
      expect_row(down, hidden - 1, 1, static_cast<uint64_t>((e * hidden + hidden - 1) * width * 2));
    }
  }
}

// Element [row][column] of a matrix of two-byte elements.
uint16_t element(const TensorView& view, int64_t row, int64_t column) {
  uint16_t bits = 0;
  std::memcpy(&bits, view.data + row * view.stride() + 2 * column, sizeof(bits));
  return bits;
}
uint16_t stored_element(size_t tensor, int64_t index) {
  const auto offset = static_cast<uint64_t>(2 * index);
  return static_cast<uint16_t>(static_cast<unsigned>(byte_at(tensor, offset)) |
                               static_cast<unsigned>(byte_at(tensor, offset + 1)) << 8);
}

// Matrices that lie column by column, as gpt-oss, Llama 4 and DBRX have them, the last one with all
// experts' rows counted together; and biases, whose elements alternate as the rows do.
TEST(FusedLayout, TransposedMatricesBecomeRows) {
  for (const bool interleaved : {false, true}) {
    SCOPED_TRACE(interleaved ? "interleaved" : "concatenated");
    ModelDescription model = model_with(kGateUp, kGateUp, kDown, interleaved);
    for (size_t i = 0; i < 3; ++i) model.tensor_names[i].transposed = true;
    model.tensor_names.insert(model.tensor_names.begin(),
                              {{Role::expert_gate_bias, "fused.{layer}.gate_up_bias", interleaved},
                               {Role::expert_up_bias, "fused.{layer}.gate_up_bias", interleaved},
                               {Role::expert_down_bias, "fused.{layer}.down_bias"}});
    for (Layer& layer : model.layers) layer.feed_forward.expert_bias = true;
    const FeedForward& part = model.layer(LayerId(0)).feed_forward;
    const int64_t width = part.width;
    const int64_t hidden = model.hidden;
    const WrittenTensors written(
        {{"fused.0.gate_up", DType::BF16, {part.experts, hidden, 2 * width}},
         {"fused.0.down", DType::BF16, {part.experts * width, hidden}},
         {"fused.0.gate_up_bias", DType::BF16, {part.experts, 2 * width}},
         {"fused.0.down_bias", DType::BF16, {part.experts, hidden}}});
    const int64_t e = part.experts - 1;
    const UnitLayout layout =
        layout_unit(model, written.checkpoint(), expert_unit(model, LayerId(0), ExpertId(e)));
    EXPECT_EQ(layout.own_bytes,
              static_cast<uint64_t>(2 * (3 * width * hidden + 2 * width + hidden)));
    EXPECT_TRUE(layout.must_settle());
    const std::vector<std::byte> unit = written.read(layout);
    const auto view = [&](Role role) {
      return layout.view(tensor_with(layout, role), unit.data());
    };
    const auto gate_column = [&](int64_t row) { return interleaved ? 2 * row : row; };
    const auto up_column = [&](int64_t row) { return interleaved ? 2 * row + 1 : width + row; };
    for (const int64_t row : {int64_t{0}, int64_t{5}, width - 1}) {
      for (const int64_t column : {int64_t{0}, int64_t{3}, hidden - 1}) {
        const int64_t first = (e * hidden + column) * 2 * width;
        EXPECT_EQ(element(view(Role::expert_gate), row, column),
                  stored_element(0, first + gate_column(row)));
        EXPECT_EQ(element(view(Role::expert_up), row, column),
                  stored_element(0, first + up_column(row)));
        EXPECT_EQ(element(view(Role::expert_down), column, row),
                  stored_element(1, (e * width + row) * hidden + column));
      }
      const auto* gate = reinterpret_cast<const uint16_t*>(view(Role::expert_gate_bias).data);
      const auto* up = reinterpret_cast<const uint16_t*>(view(Role::expert_up_bias).data);
      const auto* down = reinterpret_cast<const uint16_t*>(view(Role::expert_down_bias).data);
      EXPECT_EQ(gate[row], stored_element(2, e * 2 * width + gate_column(row)));
      EXPECT_EQ(up[row], stored_element(2, e * 2 * width + up_column(row)));
      EXPECT_EQ(down[row], stored_element(3, e * hidden + row));
    }
  }
}

std::string layout_error(const ModelDescription& model, const std::vector<NewTensor>& tensors) {
  std::vector<TensorEntry> entries;
  for (const NewTensor& tensor : tensors) {
    TensorEntry& entry = entries.emplace_back();
    entry.name = tensor.name;
    entry.dtype = tensor.dtype;
    entry.shape = tensor.shape;
  }
  const Checkpoint checkpoint = Checkpoint::described("model", std::move(entries));
  try {
    layout_unit(model, checkpoint, expert_unit(model, LayerId(0), ExpertId(0)));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_model);
    return error.what();
  }
  return "";
}

TEST(FusedLayout, OtherShapesAreNamed) {
  const ModelDescription model = model_with(kGateUp, kGateUp, kDown, false);
  const FeedForward& part = model.layer(LayerId(0)).feed_forward;
  const std::string error = layout_error(
      model, {{"fused.0.gate_up", DType::BF16, {part.experts, part.width, model.hidden}},
              {"fused.0.down", DType::BF16, {part.experts, model.hidden, part.width}}});
  const Shape expected = {part.experts, 2 * part.width, model.hidden};
  EXPECT_NE(error.find("tensor 'fused.0.gate_up'"), std::string::npos) << error;
  EXPECT_NE(error.find("implies shape " + format_shape(expected)), std::string::npos) << error;
}

TEST(FusedLayout, SideTensorsLieInTheUnitOfTheirMatrix) {
  const DType drill = testing_formats::drill_type();
  const ModelDescription model = model_with("fused.{layer}.gate.weight", "fused.{layer}.up.weight",
                                            "fused.{layer}.down.weight", false);
  const FeedForward& part = model.layer(LayerId(0)).feed_forward;
  const int64_t hidden = model.hidden;
  std::vector<NewTensor> tensors;
  for (const char* name : {"fused.0.gate", "fused.0.up", "fused.0.down"}) {
    const bool down = name == std::string_view("fused.0.down");
    const int64_t rows = down ? hidden : part.width;
    const int64_t columns = down ? part.width : hidden;
    tensors.push_back({std::string(name) + ".q8", DType::I8, {part.experts, rows, columns}});
    tensors.push_back(
        {std::string(name) + ".q8_scales", DType::F16, {part.experts, rows, columns / 32}});
  }
  const WrittenTensors written(tensors);
  const UnitLayout layout =
      layout_unit(model, written.checkpoint(), expert_unit(model, LayerId(0), ExpertId(1)));
  const std::vector<std::byte> unit = written.read(layout);
  EXPECT_EQ(layout.parts.size(), 6u);
  const PlacedTensor& up = tensor_with(layout, Role::expert_up);
  EXPECT_EQ(up.dtype, drill);
  EXPECT_EQ(layout.bytes_of(up), static_cast<uint64_t>(part.width * hidden * 34 / 32));
  const TensorView view = layout.view(up, unit.data());
  expect_row(view, 3, 2, static_cast<uint64_t>((part.width + 3) * hidden));
  // Scales of expert 0.
  const auto scales = static_cast<uint64_t>(part.width * hidden / 32 * 2);
  for (uint64_t i = 0; i < scales; ++i) ASSERT_EQ(view.sides[0][i], byte_at(3, scales + i));
  EXPECT_EQ(layout.packed_view(up, unit.data()).sides[0] - unit.data(),
            static_cast<std::ptrdiff_t>(layout.parts[up.sides[0]].packed_at));
}

TEST(FusedLayout, PartsOfAFormatThatAreMissingOrOddAreNamed) {
  testing_formats::drill_type();
  const ModelDescription model = model_with("g.weight", "u.weight", "d.weight", false);
  const FeedForward& part = model.layer(LayerId(0)).feed_forward;
  const int64_t experts = part.experts;
  const int64_t width = part.width;
  const int64_t hidden = model.hidden;
  std::vector<NewTensor> tensors = {{"u.weight", DType::BF16, {experts, width, hidden}},
                                    {"d.weight", DType::BF16, {experts, hidden, width}},
                                    {"g.q8", DType::I8, {experts, width, hidden}}};
  EXPECT_NE(layout_error(model, tensors).find("expected a tensor 'g.q8_scales'"),
            std::string::npos);
  tensors.push_back({"g.q8_scales", DType::F32, {experts, width, hidden / 32}});
  EXPECT_NE(layout_error(model, tensors).find("implies F16 of shape"), std::string::npos);
  tensors.back() = {"g.q8_scales", DType::F16, {experts, width, hidden / 16}};
  EXPECT_NE(layout_error(model, tensors).find("tensor 'g.q8_scales'"), std::string::npos);
  tensors.back() = {"g.q8_scales", DType::F16, {experts, width, hidden / 32}};
  EXPECT_EQ(layout_error(model, tensors), "");
  tensors.push_back({"g.weight", DType::BF16, {experts, width, hidden}});
  EXPECT_NE(layout_error(model, tensors).find("expected it once"), std::string::npos);

  ModelDescription odd = model;
  odd.hidden = 48;
  EXPECT_NE(layout_error(odd, {{"g.q8", DType::I8, {experts, width, 48}}})
                .find("cannot be Q8_DRILL: columns: expected a multiple of 32, found 48"),
            std::string::npos);
}

}  // namespace
}  // namespace klotski
