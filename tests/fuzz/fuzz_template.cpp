// A chat template is text from a model file: whatever it is, parsing and rendering end with a text
// or an Error, within the budgets.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/chat_template.h"

namespace {

const klotski::OrderedJson& conversation() {
  static const klotski::OrderedJson kContext = klotski::parse_ordered_json(R"({
    "messages": [
      {"role": "system", "content": "Be terse."},
      {"role": "user", "content": "  Grüße \n <b> 日本 "},
      {"role": "assistant", "content": null, "tool_calls": [
        {"id": "c1", "function": {"name": "add", "arguments": {"a": 1, "b": 2.5, "c": [true, null]}}}]},
      {"role": "tool", "content": "3.5"},
      {"role": "user", "content": [{"type": "text", "text": "x"}]}],
    "tools": [{"type": "function", "function": {"name": "add", "description": "adds",
      "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}}],
    "documents": null, "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>",
    "x": 3, "s": "abc", "l": [3, 1, 2], "d": {"k": "v", "n": {"m": 1}}})",
                                                                           "fuzz");
  return kContext;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  klotski::TemplateLimits limits;
  limits.max_steps = 20'000;
  limits.max_output_bytes = 1 << 16;
  limits.max_memory_bytes = 4 << 20;
  try {
    const std::string_view source(reinterpret_cast<const char*>(data), size);
    klotski::ChatTemplate::parse(source, "fuzz", limits).render(conversation(), std::tm{});
  } catch (const klotski::Error&) {
  }
  return 0;
}
