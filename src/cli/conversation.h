#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"

namespace klotski {

// A user's message with the model's answer to it.
struct Exchange {
  std::string question;
  std::string answer;
};

// A chat so far: a system message and exchanges. The model sees those from the first remembered one
// on; the older ones are kept to be saved.
class Conversation {
 public:
  explicit Conversation(std::string system_message = {});

  const std::string& system_message() const { return system_message_; }
  void set_system_message(std::string text) { system_message_ = std::move(text); }
  const std::vector<Exchange>& exchanges() const { return exchanges_; }
  size_t remembered() const { return exchanges_.size() - first_; }

  void add(Exchange exchange) { exchanges_.push_back(std::move(exchange)); }
  // Forgets every exchange; the system message stays.
  void clear();
  // Lets the model see no more of the oldest remembered exchanges.
  void leave_out(size_t oldest) { first_ += std::min(oldest, remembered()); }

  // The messages of a chat template: the system message, the remembered exchanges without the
  // `left_out` oldest, and the question.
  OrderedJson messages(std::string_view question, size_t left_out) const;
  // The text that a model without a chat template continues.
  std::string text(std::string_view question, size_t left_out) const;
  // Every message since the last clear(), remembered or not, in the form of OpenAI's requests.
  OrderedJson all_messages() const;

 private:
  std::string system_message_;
  std::vector<Exchange> exchanges_;
  size_t first_ = 0;  // the first remembered exchange
};

// A prompt that fits the context, and how many of the oldest exchanges it leaves out for that.
struct FittedPrompt {
  std::vector<TokenId> tokens;
  size_t left_out = 0;
};

// Tokens of a context and how many of them are kept free for the answer, where exchanges can be
// left out for that.
struct ContextRoom {
  int64_t positions = 0;
  int64_t answer = 0;
};

// Encodes a prompt with as few of the `remembered` exchanges left out, oldest first, as the room
// for an answer allows. A question that leaves less room by itself gets what is left; refuses
// (usage) one that leaves none.
FittedPrompt fit_prompt(const std::function<std::vector<TokenId>(size_t left_out)>& encode,
                        size_t remembered, ContextRoom room);

}  // namespace klotski
