#include "model/rope.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "model/families/common.h"

namespace klotski {
namespace {

// Expected frequencies were computed by Hugging Face transformers (tests/data/README.md).
TEST(RopeFrequencies, EqualTransformersForEveryKind) {
  const Json cases = parse_json(read_text_file(KLOTSKI_TEST_DATA "/rope/frequencies.json", 1 << 20),
                                "frequencies.json");
  ASSERT_EQ(cases.size(), 9u);
  for (const Json& expected : cases) {
    const Json config = {{"rope_parameters", expected["rope"]},
                         {"max_position_embeddings", expected["max"]}};
    const Rope rope = describe_rope(JsonFields(config, "config.json"), 16, 10000.0);
    EXPECT_NEAR(rope.attention_factor, expected["attention"].get<double>(), 1e-9);
    const auto frequencies = rope_frequencies(rope, expected["length"].get<int64_t>());
    ASSERT_EQ(frequencies.size(), expected["frequencies"].size());
    for (size_t i = 0; i < frequencies.size(); ++i) {
      const auto exact = expected["frequencies"][i].get<float>();
      EXPECT_NEAR(frequencies[i], exact, 1e-6f * exact) << expected["rope"].dump() << " pair " << i;
    }
  }
}

TEST(RopeFrequencies, TheOlderFormMeansTheSame) {
  const Json today = parse_json(
      R"({"max_position_embeddings":4096,"rope_parameters":{"rope_type":"yarn","rope_theta":5e5,
          "factor":4.0,"original_max_position_embeddings":1024}})",
      "f");
  const Json before = parse_json(
      R"({"max_position_embeddings":4096,"rope_theta":500000,
          "rope_scaling":{"type":"yarn","factor":4.0,"original_max_position_embeddings":1024}})",
      "f");
  EXPECT_EQ(rope_frequencies(describe_rope(JsonFields(today, "f"), 64, 1e4), 10),
            rope_frequencies(describe_rope(JsonFields(before, "f"), 64, 1e4), 10));
}

}  // namespace
}  // namespace klotski
