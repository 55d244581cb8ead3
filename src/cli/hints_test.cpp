#include "cli/hints.h"

#include <gtest/gtest.h>

#include <vector>

namespace klotski {
namespace {

const std::vector<std::string> kNames = {"run", "batch", "bench", "plan", "template"};

TEST(Hints, TheNearestName) {
  EXPECT_EQ(nearest_name("rnu", kNames), "run");
  EXPECT_EQ(nearest_name("bacth", kNames), "batch");
  EXPECT_EQ(nearest_name("bensh", kNames), "bench");
  EXPECT_EQ(nearest_name("plans", kNames), "plan");
  EXPECT_EQ(nearest_name("tempalte", kNames), "template");
}

TEST(Hints, NoNameIsNear) {
  for (const std::string& text : {std::string("fly"), std::string(), std::string("x"),
                                  std::string("quantise"), std::string(100'000, 'r')}) {
    EXPECT_FALSE(nearest_name(text, kNames)) << text.substr(0, 20);
  }
  EXPECT_FALSE(nearest_name("run", {}));
}

TEST(Hints, CommandsAndModels) {
  EXPECT_EQ(command_hint("rnu", kNames), "; did you mean run?");
  EXPECT_EQ(command_hint("fly", kNames), "");
  EXPECT_EQ(command_hint("my/model.gguf", kNames), "; to run a model: klotski run 'my/model.gguf'");
  const std::string folder = KLOTSKI_MODELS "/tiny-mixtral";
  EXPECT_NE(command_hint(folder, kNames).find("klotski run"), std::string::npos);
}

}  // namespace
}  // namespace klotski
