#include "server/choice_progress.h"

#include <utility>

namespace klotski {

ResponseChoice ChoiceProgress::next(ChoiceUpdate update) {
  ResponseChoice choice{.index = update.choice,
                        .text = {},
                        .first_call = call_count_,
                        .details = std::move(update.details),
                        .text_before = text_bytes_,
                        .finish = update.finish};
  if (calls_) {
    ToolCallReader::Part part = calls_->push(update.text);
    if (update.finish) part.text += calls_->finish().text;
    choice.text = std::move(part.text);
    choice.calls = std::move(part.calls);
    choice.called_tools = calls_->found_calls();
  } else {
    choice.text = std::move(update.text);
  }
  text_bytes_ += choice.text.size();
  call_count_ += choice.calls.size();
  return choice;
}

bool says_something(const ResponseChoice& choice) {
  return !choice.text.empty() || !choice.calls.empty() || !choice.details.empty() || choice.finish;
}

void append(ResponseChoice& whole, ResponseChoice more) {
  whole.text += more.text;
  for (ToolCall& call : more.calls) whole.calls.push_back(std::move(call));
  for (TokenDetail& detail : more.details) whole.details.push_back(std::move(detail));
  whole.finish = more.finish;
  whole.called_tools = more.called_tools;
}

}  // namespace klotski
