#pragma once

#include <vector>

#include "engine/engine.h"

namespace klotski {

// A request as its client sees it: the tokens that came, and how it ended.
struct Answer {
  std::vector<TokenId> tokens;
  std::vector<double> logprobs;  // of the tokens, where they are asked for
  Finish finish = Finish::not_yet;
  bool operator==(const Answer&) const = default;
};

inline void add_to(Answer& answer, const Progress& progress) {
  answer.tokens.push_back(progress.token);
  if (progress.logprobs) answer.logprobs.push_back(progress.logprobs->chosen);
  answer.finish = progress.finish;
}

}  // namespace klotski
