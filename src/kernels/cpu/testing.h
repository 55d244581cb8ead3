#pragma once

// Helpers of the tests of operations. Every operation is compared with the reference, and each row
// with itself computed among other rows, on every processor that can be made here.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/cpu_processor.h"
#include "kernels/cpu/kernels.h"
#include "kernels/testing.h"
#include "tensor/compact.h"
#include "tensor/half.h"

namespace klotski {

inline constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Bounds of a sum's error, relative to the magnitude of its terms and not to the sum, which may
// cancel: first where both sides multiply equal numbers, then where only one rounds its inputs to
// bf16.
inline constexpr double kSameInputs = 1e-5;
inline constexpr double kRoundedInputs = 1e-2;

inline std::vector<float> random_floats(std::mt19937& random, int64_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

inline std::vector<float> random_floats(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  return random_floats(random, count);
}

inline std::vector<float> absolute(std::vector<float> values) {
  for (float& value : values) value = std::fabs(value);
  return values;
}

inline int64_t up_to(std::mt19937& random, int64_t most) {
  return 1 + static_cast<int64_t>(random()) % most;
}

// Numbers in one of the stored types. Not copied: the view is of its own bytes.
struct Weights {
  std::vector<std::byte> bytes;
  TensorView view;

  Weights(const std::vector<float>& values, DType dtype, Shape shape) {
    if (dtype == kCompactType) {
      make_compact(values, std::move(shape));
      return;
    }
    bytes.resize(values.size() * (dtype == DType::F32 ? 4 : 2));
    for (size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::F32) {
        std::memcpy(&bytes[i * 4], &values[i], 4);
      } else {
        const uint16_t bits =
            dtype == DType::F16 ? float_to_f16(values[i]) : float_to_bf16(values[i]);
        std::memcpy(&bytes[i * 2], &bits, 2);
      }
    }
    view = {bytes.data(), dtype, std::move(shape)};
  }
  Weights(Weights&&) = default;
  Weights& operator=(Weights&&) = default;

 private:
  void make_compact(const std::vector<float>& values, Shape shape) {
    const int64_t columns = shape[1];
    std::vector<uint16_t> row(static_cast<size_t>(columns));
    bytes.resize(static_cast<size_t>(shape[0] * compact_row_bytes(columns)));
    for (int64_t n = 0; n < shape[0]; ++n) {
      std::transform(values.begin() + n * columns, values.begin() + (n + 1) * columns, row.begin(),
                     float_to_bf16);
      if (!compact_row(row, bytes.data() + n * compact_row_bytes(columns))) {
        fail(ErrorKind::internal, "row {} cannot be compact", n);
      }
    }
    view = {bytes.data(), kCompactType, std::move(shape)};
  }
};

// columns_of: columns begin .. end - 1 of rows of `width` numbers. only_columns: all columns, with
// NaNs for the other ones.
inline std::vector<float> columns_of(const std::vector<float>& values, int64_t width, int64_t begin,
                                     int64_t end) {
  std::vector<float> some;
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t column = static_cast<int64_t>(i) % width;
    if (column >= begin && column < end) some.push_back(values[i]);
  }
  return some;
}
inline std::vector<float> only_columns(std::vector<float> values, int64_t width, int64_t begin,
                                       int64_t end) {
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t column = static_cast<int64_t>(i) % width;
    if (column < begin || column >= end) values[i] = kPoison;
  }
  return values;
}

// An output that begins as NaNs, between guards that nobody may write to.
class Output {
 public:
  Output(int64_t rows, int64_t width)
      : rows_(rows), width_(width), floats_(static_cast<size_t>(rows * width + 2 * kGuard), 7.5f) {
    std::fill(floats_.begin() + kGuard, floats_.end() - kGuard, kPoison);
  }

  Rows rows() { return {floats_.data() + kGuard, rows_, width_}; }
  std::span<const float> values() const {
    return std::span(floats_).subspan(kGuard, static_cast<size_t>(rows_ * width_));
  }
  std::span<const float> values(int64_t first, int64_t count) const {
    return values().subspan(static_cast<size_t>(first * width_),
                            static_cast<size_t>(count * width_));
  }
  bool guards_are_whole() const {
    const auto whole = [](float value) { return value == 7.5f; };
    return std::all_of(floats_.begin(), floats_.begin() + kGuard, whole) &&
           std::all_of(floats_.end() - kGuard, floats_.end(), whole);
  }

 private:
  static constexpr int64_t kGuard = 64;
  int64_t rows_;
  int64_t width_;
  std::vector<float> floats_;
};

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

// |found - expected| <= relative * magnitude, element by element.
inline void expect_close(std::span<const float> found, std::span<const float> expected,
                         std::span<const float> magnitudes, double relative) {
  ASSERT_EQ(found.size(), expected.size());
  ASSERT_EQ(found.size(), magnitudes.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const double error = std::fabs(double(found[i]) - double(expected[i]));
    if (!(error <= relative * double(magnitudes[i]))) {
      FAIL() << "element " << i << ": found " << found[i] << ", expected " << expected[i]
             << ", magnitude " << magnitudes[i];
    }
  }
}

// The portable products with rounded inputs: the expected results of bf16 products. They take the
// path of bf16 products even where no instruction set of the processor has any.
inline const cpu::Kernels& rounding_kernels() {
  static const cpu::Products exact = cpu::all_kernels().begin[0]->f32;
  static const cpu::Products rounded = {
      exact.block_bytes,
      [](const cpu::BlockColumns& columns) {
        const auto width = static_cast<size_t>(columns.end - columns.begin);
        std::vector<std::vector<float>> rows(static_cast<size_t>(columns.count));
        std::vector<const float*> pointers;
        for (size_t r = 0; r < rows.size(); ++r) {
          rows[r].assign(columns.rows[r], columns.rows[r] + width);
          for (float& value : rows[r]) value = rounded_to_bf16(value);
          pointers.push_back(rows[r].data());
        }
        cpu::BlockColumns copy = columns;
        copy.rows = pointers.data();
        exact.pack(copy);
      },
      [](const cpu::Strip& strip) {
        if (strip.type != cpu::WeightType::bf16) {
          fail(ErrorKind::internal, "bf16 products were given weights of another type");
        }
        exact.multiply(strip);
      },
      nullptr, false};
  static const cpu::Kernels kernels = [] {
    cpu::Kernels all = *cpu::all_kernels().begin[0];
    all.name = "rounding";
    all.bf16 = &rounded;
    return all;
  }();
  return kernels;
}

inline std::vector<const cpu::Kernels*> every_kernels() {
  const cpu::KernelList list = cpu::all_kernels();
  std::vector<const cpu::Kernels*> all(list.begin, list.begin + list.count);
  all.push_back(&rounding_kernels());
  return all;
}

// Every instruction set this machine has, with one to four threads.
template <typename Check>
void with_every_processor(const Check& check) {
  static const auto kProcessors = [] {
    std::vector<std::unique_ptr<const CpuProcessor>> made;
    for (int threads = 1; threads <= 4; ++threads) {
      for (const cpu::Kernels* kernels : every_kernels()) {
        made.push_back(std::make_unique<const CpuProcessor>(threads, *kernels));
      }
    }
    return made;
  }();
  for (const auto& processor : kProcessors) {
    SCOPED_TRACE(processor->name() + ", threads: " + std::to_string(processor->threads()));
    check(*processor);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Whether each instruction set computes the same values whenever it is asked.
class SameEverywhere {
 public:
  bool holds(const CpuProcessor& processor, std::span<const float> values) {
    const auto& [place, added] =
        first_.try_emplace(&processor.kernels(), values.begin(), values.end());
    return same_bits(place->second, values);
  }

 private:
  std::map<const cpu::Kernels*, std::vector<float>> first_;
};

// Whether this machine rounds inputs before it multiplies them by such weights.
inline bool rounds(const CpuProcessor& processor, DType weights, Precision precision) {
  return precision == Precision::bf16 && weights == DType::BF16 && processor.kernels().bf16;
}

inline constexpr DType kStoredTypes[] = {DType::F32, DType::F16, DType::BF16};
inline constexpr Precision kPrecisions[] = {Precision::f32, Precision::bf16};

}  // namespace klotski
