// Models of GGUF files run in place: plain types equal the safetensors that they were made of,
// quantised ones the numbers that their blocks expand to.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <span>

#include "engine/testing/pipeline_runs.h"
#include "model/testing_gguf.h"
#include "tensor/format.h"
#include "tensor/half.h"
#include "tensor/tensor_view.h"
#include "tensor/testing.h"

namespace klotski {
namespace {

using testing_files::ScratchFolder;
using testing_gguf::GgufChoice;
using testing_gguf::StoredMatrix;
using testing_gguf::write_gguf_model;

// Few slots, so that most experts are read from the file when they are chosen.
RunLimits few_slots(Precision precision) {
  RunLimits limits;
  limits.expert_slots = 6;
  limits.precision = precision;
  return limits;
}

constexpr Precision kBothPrecisions[] = {Precision::f32, Precision::bf16};

void expect_runs_as(const std::string& path, const TestModel& plain,
                    std::span<const Precision> precisions = kBothPrecisions) {
  const TestModel test(path);
  std::mt19937_64 random(5);
  const Texts texts = random_texts(random, 4, test.description.vocabulary);
  for (const Precision precision : precisions) {
    for (const Processor* ops : {&reference_processor(), &cpu_processor()}) {
      const std::vector<Logits> expected = run_resident(plain, texts, precision, *ops);
      PreparedModel prepared = test.prepare(few_slots(precision), texts.workload(), {}, *ops);
      EXPECT_EQ(run_pipeline(prepared.pipeline(), texts, random), expected);
    }
  }
}

class GgufRuns : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufRuns, EqualSafetensorsBitForBit) {
  const ScratchFolder folder;
  const auto path = write_gguf_model(test_model(GetParam()), folder.path(), "m", {.shards = 2});
  expect_runs_as(path, TestModel(test_model(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Families, GgufRuns,
                         ::testing::Values("qwen2_moe", "qwen3_moe", "olmoe", "gpt_oss",
                                           "deepseek_v2", "deepseek_v3"));

// W_uk that lies transposed is multiplied in another order of sums.
TEST(GgufRunsLatent, WithMatricesOfHeadsApartAreNearlyEqual) {
  for (const char* name : {"deepseek_v2", "deepseek_v3"}) {
    const ScratchFolder folder;
    const auto path = write_gguf_model(test_model(name), folder.path(), "m", {.apart = true});
    const TestModel test(path);
    std::mt19937_64 random(6);
    const Texts texts = random_texts(random, 3, test.description.vocabulary);
    for (const Processor* ops : {&reference_processor(), &cpu_processor()}) {
      const auto expected = run_resident(TestModel(test_model(name)), texts, Precision::f32, *ops);
      PreparedModel prepared = test.prepare(few_slots(Precision::f32), texts.workload(), {}, *ops);
      const auto found = run_pipeline(prepared.pipeline(), texts, random);
      for (size_t text = 0; text < found.size(); ++text) {
        ASSERT_EQ(found[text].size(), expected[text].size());
        for (size_t row = 0; row < found[text].size(); ++row) {
          for (size_t i = 0; i < found[text][row].size(); ++i) {
            ASSERT_NEAR(found[text][row][i], expected[text][row][i], 2e-4) << name;
          }
        }
      }
    }
  }
}

// Rows of queries and keys lie in another order, so that products of heads are summed in another.
TEST(GgufRuns, MixtralEqualsSafetensorsUpToRounding) {
  const ScratchFolder folder;
  for (const bool merged : {true, false}) {
    const TestModel test(
        write_gguf_model(test_model("mixtral"), folder.path(), "m", {.merged = merged}));
    const TestModel plain(test_model("mixtral"));
    std::mt19937_64 random(5);
    const Texts texts = random_texts(random, 4, test.description.vocabulary);
    const std::vector<Logits> expected = run_resident(plain, texts, Precision::f32);
    PreparedModel prepared = test.prepare(few_slots(Precision::f32), texts.workload());
    const std::vector<Logits> found = run_pipeline(prepared.pipeline(), texts, random);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t text = 0; text < found.size(); ++text) {
      for (size_t pass = 0; pass < found[text].size(); ++pass) {
        for (size_t i = 0; i < found[text][pass].size(); ++i) {
          ASSERT_NEAR(found[text][pass][i], expected[text][pass][i], 2e-5);
        }
      }
    }
  }
}

// Random blocks of one type after the other, as files mix them, and the numbers of these blocks.
class MixedBlocks {
 public:
  StoredMatrix packed(const StoredMatrix& like) {
    const int64_t columns = like.shape.back();
    DType type = next_type();
    while (columns % format_of(type).block_columns != 0) type = next_type();
    uint64_t bytes = 0;
    EXPECT_TRUE(byte_count(like.shape, type, &bytes));
    const NoiseBits noise = format_of(type).noise;
    StoredMatrix matrix{like.shape, type, ""};
    while (matrix.bytes.size() < bytes) {
      matrix.bytes += testing_gguf::bytes_of((random_() & noise.random) | noise.fixed);
    }
    matrix.bytes.resize(bytes);
    return matrix;
  }
  static StoredMatrix expanded(const StoredMatrix& matrix) {
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < matrix.shape.size(); ++i) rows *= matrix.shape[i];
    const TensorView view{.data = reinterpret_cast<const std::byte*>(matrix.bytes.data()),
                          .dtype = matrix.dtype,
                          .shape = {rows, matrix.shape.back()}};
    const std::vector<float> numbers = testing_formats::expanded(view);
    return {matrix.shape, DType::F32,
            std::string(reinterpret_cast<const char*>(numbers.data()), 4 * numbers.size())};
  }

 private:
  DType next_type() {
    const int count = static_cast<int>(DType::MXFP4) - static_cast<int>(DType::Q4_0) + 1;
    return static_cast<DType>(static_cast<int>(DType::Q4_0) + next_++ % count);
  }
  int next_ = 0;
  std::mt19937_64 random_{11};
};

TEST(GgufRuns, BlocksEqualTheirNumbersBitForBit) {
  const ScratchFolder folder;
  const std::string from = std::string(KLOTSKI_MODELS) + "/tiny-mixtral";
  MixedBlocks blocks;
  GgufChoice choice{.merged = false};
  choice.pack = [&](const StoredMatrix& like) { return blocks.packed(like); };
  const auto packed = write_gguf_model(from, folder.path(), "packed", choice);
  blocks = MixedBlocks();  // the same blocks again
  choice.pack = [&](const StoredMatrix& like) { return blocks.expanded(blocks.packed(like)); };
  const auto plain = write_gguf_model(from, folder.path(), "plain", choice);
  // Products that round their inputs round such numbers as well.
  expect_runs_as(packed, TestModel(plain), std::span(kBothPrecisions).first(1));
  expect_runs_as(packed, TestModel(packed), std::span(kBothPrecisions).last(1));
}

// Q8_0 blocks of BF16 numbers, whose rows do not depend on the tensor they lie in.
StoredMatrix in_q8_0(const StoredMatrix& matrix) {
  StoredMatrix packed{matrix.shape, DType::Q8_0, ""};
  const std::string numbers = testing_gguf::as_floats(matrix).bytes;
  for (size_t at = 0; at < numbers.size(); at += 32 * sizeof(float)) {
    std::array<float, 32> block{};
    std::memcpy(block.data(), numbers.data() + at, sizeof(block));
    float largest = 0.0f;
    for (const float number : block) largest = std::max(largest, std::fabs(number));
    const uint16_t scale = float_to_f16(largest / 127.0f);
    packed.bytes += testing_gguf::bytes_of(scale);
    for (const float number : block) {
      const float steps = scale == 0 ? 0.0f : std::round(number / f16_to_float(scale));
      packed.bytes += static_cast<char>(static_cast<int8_t>(std::clamp(steps, -127.0f, 127.0f)));
    }
  }
  return packed;
}

TEST(GgufRuns, QuantisedExpertsOfOneTensorEqualTensorsOfTheirOwn) {
  const ScratchFolder folder;
  for (const char* name : {"mixtral", "qwen3_moe"}) {
    const auto merged =
        write_gguf_model(test_model(name), folder.path(), "merged", {.pack = in_q8_0});
    const auto alone = write_gguf_model(test_model(name), folder.path(), "alone",
                                        {.merged = false, .pack = in_q8_0});
    expect_runs_as(merged, TestModel(alone));
  }
}

}  // namespace
}  // namespace klotski
