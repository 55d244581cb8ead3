#include "cli/conversation.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace klotski {

namespace {

void append_exchange(OrderedJson& messages, const Exchange& exchange) {
  messages.push_back({{"role", "user"}, {"content", exchange.question}});
  messages.push_back({{"role", "assistant"}, {"content", exchange.answer}});
}

OrderedJson begun_messages(const std::string& system_message) {
  OrderedJson messages = OrderedJson::array();
  if (!system_message.empty()) {
    messages.push_back({{"role", "system"}, {"content", system_message}});
  }
  return messages;
}

}  // namespace

Conversation::Conversation(std::string system_message)
    : system_message_(std::move(system_message)) {}

void Conversation::clear() {
  exchanges_.clear();
  first_ = 0;
}

OrderedJson Conversation::messages(std::string_view question, size_t left_out) const {
  OrderedJson messages = begun_messages(system_message_);
  for (size_t i = first_ + left_out; i < exchanges_.size(); ++i) {
    append_exchange(messages, exchanges_[i]);
  }
  messages.push_back({{"role", "user"}, {"content", question}});
  return messages;
}

std::string Conversation::text(std::string_view question, size_t left_out) const {
  std::string text;
  for (size_t i = first_ + left_out; i < exchanges_.size(); ++i) {
    text += exchanges_[i].question + exchanges_[i].answer + "\n";
  }
  return text.append(question);
}

OrderedJson Conversation::all_messages() const {
  OrderedJson messages = begun_messages(system_message_);
  for (const Exchange& exchange : exchanges_) append_exchange(messages, exchange);
  return messages;
}

FittedPrompt fit_prompt(const std::function<std::vector<TokenId>(size_t left_out)>& encode,
                        size_t remembered, ContextRoom room) {
  for (size_t left_out = 0;; ++left_out) {
    FittedPrompt prompt{.tokens = encode(left_out), .left_out = left_out};
    const int64_t free = room.positions - static_cast<int64_t>(prompt.tokens.size());
    if (free >= std::max<int64_t>(room.answer, 1)) return prompt;
    if (left_out < remembered) continue;
    if (free >= 1) return prompt;
    fail(ErrorKind::usage,
         "the message has {} tokens with its system message, the context holds {}: send a shorter "
         "one",
         prompt.tokens.size(), room.positions);
  }
}

}  // namespace klotski
