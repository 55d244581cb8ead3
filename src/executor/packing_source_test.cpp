#include "executor/packing_source.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "executor/disk_source.h"
#include "kernels/testing.h"
#include "model/compact_model.h"
#include "model/config.h"
#include "tensor/compact.h"
#include "tensor/format.h"
#include "weights/checkpoint.h"

namespace klotski {
namespace {

struct PackedModel {
  std::string folder = std::string(KLOTSKI_MODELS) + "/tiny-mixtral";
  ModelDescription description = read_config(folder);
  Checkpoint plain = Checkpoint::open(folder);
  Checkpoint packed = packed_in_memory(description, plain).value();
  UnitLayouts plain_layouts{description, plain};
  UnitLayouts layouts{description, packed};
};

// A settled unit, with room at its beginning so that its buffer can be aligned.
std::vector<std::byte> read_unit(UnitSource& source, const UnitLayouts& layouts,
                                 const WeightUnit& unit, std::byte** begin) {
  constexpr uint64_t kAlignment = 4096;
  const UnitLayout& layout = layouts.of(unit);
  std::vector<std::byte> memory(layout.buffer_bytes + kAlignment);
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  *begin = memory.data() + (kAlignment - address % kAlignment) % kAlignment;
  source.read(unit, layout, {*begin, layout.buffer_bytes}, cpu_processor());
  settle(layout, *begin);
  return memory;
}

std::vector<std::byte> numbers_of(const TensorView& view) {
  const WeightFormat& format = format_of(view.dtype);
  if (!is_packed(view.dtype)) {
    uint64_t bytes = 0;
    EXPECT_TRUE(byte_count(view.shape, view.dtype, &bytes));
    return {view.data, view.data + bytes};
  }
  const auto row_bytes = static_cast<size_t>(bytes_per_row(format.values, view.columns()));
  std::vector<std::byte> numbers(static_cast<size_t>(view.rows()) * row_bytes);
  for (int64_t row = 0; row < view.rows(); ++row) {
    format.expand(view, row, numbers.data() + static_cast<size_t>(row) * row_bytes);
  }
  return numbers;
}

TEST(PackingSource, UnitsHaveTheNumbersOfTheFiles) {
  const PackedModel model;
  DiskSource plain(model.plain, {});
  PackingSource packing(model.description, model.plain,
                        std::make_shared<DiskSource>(model.plain, DiskReaderOptions{}));
  EXPECT_GE(packing.memory_bytes(), model.plain_layouts.buffer_bytes(UnitKind::expert));
  int packed = 0;
  for (const auto& [unit, layout] : model.layouts.all()) {
    SCOPED_TRACE(format_unit(unit));
    std::byte* here = nullptr;
    std::byte* there = nullptr;
    const auto of_packing = read_unit(packing, model.layouts, unit, &here);
    const auto of_files = read_unit(plain, model.plain_layouts, unit, &there);
    const UnitLayout& stored = model.plain_layouts.of(unit);
    ASSERT_EQ(layout.tensors.size(), stored.tensors.size());
    for (size_t i = 0; i < layout.tensors.size(); ++i) {
      packed += layout.tensors[i].dtype == kCompactType;
      EXPECT_EQ(numbers_of(layout.view(layout.tensors[i], here)),
                numbers_of(stored.view(stored.tensors[i], there)));
    }
  }
  EXPECT_EQ(packed, 3 * static_cast<int>(units_of(model.description, UnitKind::expert).size()));
}

// Parts that are not packed arrive as the files have them, and are transposed once.
TEST(PackingSource, TransposedExpertsAreTurnedOnce) {
  const std::string folder = std::string(KLOTSKI_TEST_DATA) + "/models/gpt_oss";
  const ModelDescription description = read_config(folder);
  const Checkpoint checkpoint = Checkpoint::open(folder);
  const UnitLayouts layouts(description, checkpoint);
  DiskSource plain(checkpoint, {});
  PackingSource packing(description, checkpoint,
                        std::make_shared<DiskSource>(checkpoint, DiskReaderOptions{}));
  for (const WeightUnit& unit : units_of(description, UnitKind::expert)) {
    SCOPED_TRACE(format_unit(unit));
    const UnitLayout& layout = layouts.of(unit);
    ASSERT_TRUE(layout.must_settle());
    std::byte* here = nullptr;
    std::byte* there = nullptr;
    const auto of_packing = read_unit(packing, layouts, unit, &here);
    const auto of_files = read_unit(plain, layouts, unit, &there);
    for (const PlacedTensor& tensor : layout.tensors) {
      EXPECT_EQ(numbers_of(layout.view(tensor, here)), numbers_of(layout.view(tensor, there)));
    }
  }
}

// A source of bytes that no sixteen exponents hold.
class WildSource final : public UnitSource {
 public:
  void read(const WeightUnit&, const UnitLayout&, std::span<std::byte> buffer,
            const Processor&) override {
    for (size_t i = 0; i < buffer.size(); ++i) buffer[i] = static_cast<std::byte>(i * 37 % 251);
  }
};

TEST(PackingSource, RowsThatCannotBePackedAreRefused) {
  const PackedModel model;
  PackingSource packing(model.description, model.plain, std::make_shared<WildSource>());
  const WeightUnit expert = units_of(model.description, UnitKind::expert).front();
  std::byte* begin = nullptr;
  try {
    read_unit(packing, model.layouts, expert, &begin);
    FAIL() << "expected NotPackable";
  } catch (const NotPackable& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_model);
    EXPECT_NE(std::string(error.what()).find(format_unit(expert)), std::string::npos);
  }
}

}  // namespace
}  // namespace klotski
