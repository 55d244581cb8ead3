#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cuda/testing.h"
#include "kernels/ops.h"
#include "tensor/half.h"

namespace klotski {
namespace {

class CudaStoreKv : public GpuTest {};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Case {
  int64_t first_position, tokens, width, page_tokens;
  DType type;
};

// New rows of a sequence, with numbers that are hard to round among them.
std::vector<float> random_rows(std::mt19937& random, int64_t count) {
  constexpr float kHard[] = {
      0.0f,        -0.0f,       kInfinity, -kInfinity, kNan,
      1.00390625f, 1.01171875f, 3.4e38f,   1e-40f};  // two ties, one that rounds to infinity
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = random() % 8 == 0 ? kHard[random() % 9] : normal(random);
  return values;
}

// Keys or values: rows, and pages that begin as bytes 0xFF. A page may be left out.
class Kind {
 public:
  Kind(std::mt19937& random, const Case& shape, int64_t left_out)
      : shape_(shape),
        rows_(random_rows(random, std::max<int64_t>(shape.tokens, 1) * shape.width)),
        device_rows_{std::span<const float>(rows_)},
        pool_(static_cast<size_t>(pages() * page_bytes())) {
    for (int64_t page = 0; page < pages(); ++page) {
      std::byte* memory = pool_.data() + (pages() - 1 - page) * page_bytes();
      addresses_.push_back(page == left_out ? nullptr : memory);
    }
  }

  ConstRows rows() { return {device_rows_.data(), shape_.tokens, shape_.width}; }
  std::span<std::byte* const> addresses() const { return addresses_; }

  void check() {
    const std::vector<std::byte> found = pool_.download();
    for (int64_t i = 0; i < pages() * shape_.page_tokens * shape_.width; ++i) {
      const int64_t position = i / shape_.width;
      const int64_t row = position - shape_.first_position;
      const int64_t page = position / shape_.page_tokens;
      const bool stored =
          row >= 0 && row < shape_.tokens && addresses_[static_cast<size_t>(page)] != nullptr;
      const int64_t place = (pages() - 1 - page) * page_bytes() +
                            i % (shape_.page_tokens * shape_.width) * element_bytes();
      const std::byte* element = found.data() + place;
      SCOPED_TRACE(testing::Message()
                   << "position " << position << ", element " << i % shape_.width);
      if (!stored) {
        for (int64_t b = 0; b < element_bytes(); ++b) ASSERT_EQ(element[b], std::byte{0xFF});
      } else {
        check_element(element, rows_[static_cast<size_t>(row * shape_.width + i % shape_.width)]);
      }
      if (testing::Test::HasFatalFailure()) return;
    }
  }

 private:
  int64_t element_bytes() const { return bytes_per_element(shape_.type); }
  int64_t page_bytes() const { return shape_.page_tokens * shape_.width * element_bytes(); }
  int64_t pages() const {
    return (shape_.first_position + shape_.tokens + shape_.page_tokens - 1) / shape_.page_tokens +
           1;
  }

  void check_element(const std::byte* element, float expected) const {
    float found = 0.0f;
    if (shape_.type == DType::BF16) {
      uint16_t bits = 0;
      std::memcpy(&bits, element, sizeof(bits));
      found = bf16_to_float(bits);
      expected = rounded_to_bf16(expected);
    } else {
      std::memcpy(&found, element, sizeof(found));
    }
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(found));
    } else {
      ASSERT_EQ(std::memcmp(&found, &expected, sizeof(float)), 0)
          << "found " << found << ", expected " << expected;
    }
  }

  Case shape_;
  std::vector<float> rows_;
  DeviceArray<float> device_rows_;
  DeviceArray<std::byte> pool_;  // pages, the last one first
  std::vector<std::byte*> addresses_;
};

struct Sequence {
  Kind keys, values;
  Case shape;

  Sequence(std::mt19937& random, const Case& of, int64_t left_out, int64_t value_width)
      : keys(random, of, left_out),
        values(random, with_width(of, value_width), left_out),
        shape(of) {}
  static Case with_width(Case of, int64_t width) {
    of.width = width;
    return of;
  }
  KvRows arguments() {
    return {.cache = {.keys = keys.addresses(),
                      .values = values.addresses(),
                      .type = shape.type,
                      .page_tokens = shape.page_tokens},
            .first_position = shape.first_position,
            .keys = keys.rows(),
            .values = values.rows()};
  }
};

TEST_F(CudaStoreKv, PutsRowsOfSeveralSequencesIntoTheirPages) {
  const Case cases[] = {
      {0, 1, 1024, 16, DType::BF16}, {543, 1, 1024, 16, DType::BF16}, {0, 50, 64, 16, DType::BF16},
      {13, 37, 96, 16, DType::F32},  {5, 9, 3, 4, DType::BF16},       {5, 9, 3, 4, DType::F32},
      {31, 2, 8, 16, DType::F32},    {7, 0, 8, 16, DType::BF16},      {16, 16, 10, 16, DType::BF16},
      {2, 5, 6, 1, DType::F32},      {0, 300, 5, 7, DType::BF16}};
  std::mt19937 random(2);
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<KvRows> arguments;
  for (const Case& shape : cases) {
    for (const int64_t value_width : {shape.width, shape.width / 2 + 1}) {
      const int64_t left_out = shape.tokens > 30 ? 1 : -1;
      sequences.push_back(std::make_unique<Sequence>(random, shape, left_out, value_width));
      arguments.push_back(sequences.back()->arguments());
    }
  }
  ops().store_kv(arguments);
  for (const auto& sequence : sequences) {
    SCOPED_TRACE(testing::Message()
                 << sequence->shape.tokens << " tokens from " << sequence->shape.first_position
                 << ", width " << sequence->shape.width);
    sequence->keys.check();
    sequence->values.check();
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST_F(CudaStoreKv, PutsKeysAloneWhereTheyHaveTheValues) {
  std::mt19937 random(4);
  Sequence sequence(random, {13, 37, 40, 16, DType::BF16}, -1, 3);
  KvRows rows = sequence.arguments();
  rows.cache.values = {};
  rows.values = {nullptr, rows.keys.count, 0};
  ops().store_kv(std::span<const KvRows>(&rows, 1));
  sequence.keys.check();
}

TEST_F(CudaStoreKv, TakesNothing) {
  ops().store_kv({});
  ops().memory.finish();
}

}  // namespace
}  // namespace klotski
