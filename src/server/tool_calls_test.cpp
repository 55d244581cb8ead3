#include "server/tool_calls.h"

#include <gtest/gtest.h>

namespace klotski {
namespace {

// The text, and behind it the calls, that come out where `text` goes in, in pieces of `size` bytes.
std::string read(std::string_view text, size_t size) {
  ToolCallReader reader;
  std::string rest;
  std::string calls;
  const auto add = [&](const ToolCallReader::Part& part) {
    rest += part.text;
    for (const ToolCall& call : part.calls) calls += "[" + call.name + call.arguments + "]";
  };
  for (; !text.empty(); text.remove_prefix(std::min(size, text.size()))) {
    add(reader.push(text.substr(0, size)));
  }
  add(reader.finish());
  return rest + calls;
}

TEST(ToolCallReader, SeparatesCallsFromTextWhereverItIsCut) {
  const std::string text =
      "a <b>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, \"</b>\"]}}\n</tool_call>"
      "\n<tool_call>{\"name\": \"g\"}</tool_call>";
  for (size_t size = 1; size <= text.size(); ++size) {
    EXPECT_EQ(read(text, size), "a <b>\n[f{\"x\":[1,\"</b>\"]}][g{}]") << size;
    EXPECT_EQ(read(text + "\n", size), "a <b>\n[f{\"x\":[1,\"</b>\"]}][g{}]") << size;
    EXPECT_EQ(read(text + "\n b", size), "a <b>\n\n b[f{\"x\":[1,\"</b>\"]}][g{}]") << size;
  }
}

TEST(ToolCallReader, LeavesTextThatIsNoCallAsItIs) {
  for (const std::string text :
       {"", "<", "<tool_call", "<tool_call>{\"name\": \"f\"}", "<tool_call>nonsense</tool_call>",
        "<tool_call>{\"arguments\": {}}</tool_call> x", "</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": 3}</tool_call>", "a<tool_b"}) {
    for (const size_t size : {1, 3, 1000}) EXPECT_EQ(read(text, size), text);
  }
}

TEST(ToolCallReader, HoldsBackOnlyTextThatMayBeginACall) {
  ToolCallReader reader;
  EXPECT_EQ(reader.push("abc <too").text, "abc ");
  EXPECT_EQ(reader.push("thbrush").text, "<toothbrush");
  EXPECT_FALSE(reader.found_calls());
}

}  // namespace
}  // namespace klotski
