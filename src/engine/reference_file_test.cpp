#include "engine/reference_file.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "engine/testing/models.h"

namespace klotski {
namespace {

TEST(ParseReference, RefusesWhatDoesNotFitTheModel) {
  const ModelDescription model = read_config(test_model("mixtral"));
  const std::vector<std::string> bad = {
      R"([])",
      R"({})",
      R"({"prompts":[]})",
      R"({"prompts":[{"greedy":[1]}]})",
      R"({"prompts":[{"input_ids":[]}]})",
      R"({"prompts":[{"input_ids":[1],"last_logit":[1]}]})",
      R"({"prompts":[{"input_ids":[256]}]})",
      R"({"prompts":[{"input_ids":[-1]}]})",
      R"({"prompts":[{"input_ids":[1],"last_logits":[1,2]}]})",
      R"({"prompts":[{"input_ids":[1],"argmax_all":[1,2]}]})",
      R"({"prompts":[{"input_ids":[1],"greedy":[1,2],"margins":[0.1]}]})",
      R"({"prompts":[{"input_ids":[1],"greedy":[1],"margins":["x"]}]})",
  };
  for (const std::string& text : bad) {
    EXPECT_THROW(parse_reference(text, "reference.json", model), Error) << text;
  }
}

}  // namespace
}  // namespace klotski
