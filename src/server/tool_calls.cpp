#include "server/tool_calls.h"

#include <algorithm>
#include <optional>

#include "base/json.h"

namespace klotski {

namespace {

constexpr std::string_view kBegin = "<tool_call>";
constexpr std::string_view kEnd = "</tool_call>";

std::optional<ToolCall> parse_call(std::string_view text) {
  try {
    const OrderedJson call = parse_ordered_json(text, "tool call", ErrorKind::usage);
    if (!call.is_object() || !call.value("name", OrderedJson()).is_string()) return std::nullopt;
    const OrderedJson arguments = call.value("arguments", OrderedJson::object());
    if (!arguments.is_object()) return std::nullopt;
    return ToolCall{.name = call["name"].get<std::string>(), .arguments = arguments.dump()};
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Models write line ends between calls and behind the last: they are no answer of their own.
bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \r\n\t") == std::string_view::npos;
}

// Bytes at the end of the text that may begin a call.
size_t begun(std::string_view text) {
  size_t length = std::min(text.size(), kBegin.size() - 1);
  while (length > 0 && !text.ends_with(kBegin.substr(0, length))) --length;
  return length;
}

}  // namespace

void ToolCallReader::read_whole_calls(Part& part) {
  while (true) {
    if (!inside_) {
      const size_t begin = held_.find(kBegin);
      const size_t certain = begin != std::string::npos ? begin : held_.size() - begun(held_);
      const bool between_calls =
          after_call_ && is_blank(std::string_view(held_).substr(0, certain));
      if (between_calls && begin == std::string::npos) return;
      if (!between_calls) {
        part.text += held_.substr(0, certain);
        after_call_ = false;
      }
      held_.erase(0, certain);
      if (begin == std::string::npos) return;
      inside_ = true;
    }
    const size_t end = held_.find(kEnd);
    if (end == std::string::npos) return;
    const auto inner = std::string_view(held_).substr(kBegin.size(), end - kBegin.size());
    if (auto call = parse_call(inner)) {
      part.calls.push_back(std::move(*call));
      found_calls_ = after_call_ = true;
    } else {
      after_call_ = false;
      part.text += held_.substr(0, end + kEnd.size());
    }
    held_.erase(0, end + kEnd.size());
    inside_ = false;
  }
}

ToolCallReader::Part ToolCallReader::push(std::string_view more) {
  held_ += more;
  Part part;
  read_whole_calls(part);
  return part;
}

ToolCallReader::Part ToolCallReader::finish() {
  Part part;
  if (!after_call_ || !is_blank(held_)) part.text = std::move(held_);
  held_.clear();
  inside_ = false;
  return part;
}

}  // namespace klotski
