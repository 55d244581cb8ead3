#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/draft_budget.h"
#include "engine/sampling.h"
#include "server/api_error.h"

namespace klotski {

enum class FinishReason { stop, length };

// A generated token with its probability, where the request asks for one.
struct TokenDetail {
  TokenId token = 0;
  PositionLogprobs logprobs;
};

// Something that became certain about one choice of a request.
struct ChoiceUpdate {
  using Clock = std::chrono::steady_clock;

  size_t choice = 0;
  std::string text;
  std::vector<TokenDetail> details{};
  int64_t tokens = 0;  // generated since the update before
  std::optional<FinishReason> finish{};
  DraftCounts drafts{};  // of the whole choice, where it is finished
  Clock::time_point made = Clock::now();
};

// The way of one request's text from the engine's thread to the thread that sends it. What is
// not taken is bounded: a reader that is too slow loses the request.
class GenerationStream {
 public:
  GenerationStream(size_t choices, uint64_t most_untaken_bytes)
      : unfinished_(choices), most_untaken_bytes_(most_untaken_bytes) {}

  // For the engine's thread. False where nobody wants the rest: the reader is gone or too slow.
  bool push(ChoiceUpdate update);
  void fail(ApiError error);

  // For the reader's thread.
  std::vector<ChoiceUpdate> take();
  // Whether take() will give no more; error() then says whether that is a failure.
  bool ended() const;
  std::optional<ApiError> error() const;
  void abandon() { abandoned_ = true; }
  // Called on the reader's thread when there is something to take; may be empty.
  std::function<void()> on_ready;

  bool abandoned() const { return abandoned_; }

 private:
  mutable std::mutex mutex_;
  std::vector<ChoiceUpdate> updates_;
  uint64_t untaken_bytes_ = 0;
  size_t unfinished_;
  std::optional<ApiError> error_;
  std::atomic<bool> abandoned_ = false;
  const uint64_t most_untaken_bytes_;
};

// Lets the engine know that nobody reads the stream any more, however its reader ended.
struct AbandonAtEnd {
  std::shared_ptr<GenerationStream> stream;
  ~AbandonAtEnd() { stream->abandon(); }
};

}  // namespace klotski
