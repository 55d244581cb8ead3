#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace klotski {

// A function that the model asks to be called.
struct ToolCall {
  std::string name;
  std::string arguments;  // a JSON object as text
};

// Separates calls in Hermes' form, <tool_call>{"name": ..., "arguments": {...}}</tool_call>, from
// the text around them, as the text comes. Text that may begin a call is held back. A call that
// cannot be read, or does not end, stays text.
class ToolCallReader {
 public:
  struct Part {
    std::string text;  // certain to be no part of a call
    std::vector<ToolCall> calls;
  };

  Part push(std::string_view more);
  Part finish();  // when no more text comes
  bool found_calls() const { return found_calls_; }

 private:
  void read_whole_calls(Part& part);

  std::string held_;
  bool inside_ = false;      // held_ begins with <tool_call>
  bool after_call_ = false;  // nothing but blanks since the last call
  bool found_calls_ = false;
};

}  // namespace klotski
