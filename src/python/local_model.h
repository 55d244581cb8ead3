#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/text_stream.h"
#include "session/session.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace klotski {

// A text to generate.
struct LocalRequest {
  Request request;  // its stop tokens are those of the user; the model's end tokens are added
  std::vector<std::string> stop_strings;
  bool ignore_end = false;     // do not stop at the model's end tokens
  bool begins_a_text = false;  // an answer in a chat; else the text continues the prompt's
  bool streamed = false;       // updates after every pass, not only at the end
};

// News of a request since its last update. Seconds count from submit().
struct LocalUpdate {
  int64_t request = 0;
  std::vector<TokenId> tokens;
  std::vector<PositionLogprobs> logprobs;  // [token], where the request asks for them
  std::string text;
  Finish finish = Finish::not_yet;
  bool stopped = false;  // by a stop string
  std::string error;     // where finish is `failed`
  ErrorKind error_kind = ErrorKind::internal;
  double first_token_seconds = 0.0;
  double seconds = 0.0;
};

// Work to plan for. A plan covers smaller work too.
struct LocalWork {
  int64_t sequences = 1;
  int64_t prompt_tokens = 1;     // of the longest prompt
  int64_t generated_tokens = 1;  // of the longest answer
  int64_t typical_tokens = 0;    // prompt and answer of a usual sequence; 0: all are as long
};

// The experts that the tokens of some texts went to, in the order in which they were computed.
struct RoutedTokens {
  RoutingTraceShape shape;
  std::vector<uint32_t> sequence;  // [token]
  std::vector<uint32_t> position;  // [token]
  std::vector<TokenId> token;      // [token]
  std::vector<uint16_t> choices;   // [token][routed layer][top_k of that layer]
};

// A model in a program that drives it: requests are submitted at any time, from any thread, and
// computed by whoever calls step(). Plans and loads the session when work comes that the last plan
// does not cover and nothing runs. The memory limit bounds the memory that the model takes beyond
// what the program had before.
class LocalModel {
 public:
  struct Options {
    SessionOptions session{};
    LocalWork least_work{};            // plans are made for at least this
    std::function<void()> progress{};  // called while weights are loaded; may throw to end that
  };

  LocalModel(const std::string& model, Options options);
  LocalModel(const LocalModel&) = delete;
  LocalModel& operator=(const LocalModel&) = delete;

  const OpenedModel& model() const { return *model_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  const SamplingOptions& suggested_sampling() const { return sampling_; }
  std::vector<std::string> lossy() const;

  // Tokens of a plain text, and of a conversation by the model's template. Thread-safe.
  std::vector<TokenId> prompt_of(std::string_view text) const;
  std::vector<TokenId> prompt_of_chat(const OrderedJson& messages, const OrderedJson& tools) const;

  // Announces work, so that the next plan covers all of it and not only its first request.
  void expect(const LocalWork& work);
  // Refuses (usage) a request that is wrong. The number names it in updates.
  int64_t submit(LocalRequest request);
  // Forgets a request; no update of it follows, but for those that step() returns at the moment.
  void cancel(int64_t request);
  // Whether step() has something to do.
  bool busy() const;
  // Fewer requests wait than let the engine always find some to choose from.
  bool wants_more() const;

  // Computes passes until there are updates or some milliseconds have gone by, at least one. Called
  // by one thread at a time.
  std::vector<LocalUpdate> step();

  // The plan for some work, which takes the memory of a loaded model: only while nothing runs.
  Json plan(const LocalWork& work);
  // Only while nothing runs.
  RoutedTokens routed_tokens(const std::vector<std::vector<TokenId>>& texts);

  // Remarks of the session since the last call.
  std::vector<std::string> take_remarks();
  // Counters of the passes since the model was loaded, as JSON; null while it is not loaded.
  Json report();

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    int64_t id = 0;
    LocalRequest request;
    Clock::time_point submitted;
  };
  struct Running {
    LocalUpdate news;
    TextStream text;
    bool streamed = false;
    Clock::time_point submitted;
    bool begun = false;
  };

  bool covered(const LocalWork& work) const;
  void load_for(const LocalWork& work);
  void limit_memory();
  Planning explain(const LocalWork& work);
  void refuse_while_busy(std::string_view what) const;
  void cancel_asked();
  void begin_waiting(std::vector<LocalUpdate>& updates);
  void begin(Waiting waiting);
  void take(const Progress& progress, std::vector<LocalUpdate>& updates);

  uint64_t own_bytes_ = 0;  // taken by the opened model
  std::shared_ptr<const OpenedModel> model_;
  Tokenizer tokenizer_;
  TokenizerConfig config_;
  std::optional<ChatTemplate> chat_template_;
  SamplingOptions sampling_;
  LocalWork least_work_;
  std::optional<uint64_t> ram_bytes_;  // allowed beyond what the program had before
  std::vector<std::string> remarks_;
  std::optional<Session> session_;
  std::optional<LocalWork> planned_;
  int64_t most_running_ = 0;  // requests in the engine at once

  // Members that only the thread in step() uses.
  std::map<SequenceId, Running> running_;
  std::map<int64_t, SequenceId> sequence_of_;

  mutable std::mutex mutex_;  // guards the members below
  std::deque<Waiting> waiting_;
  std::set<int64_t> cancelled_;
  std::optional<LocalWork> expected_;
  int64_t next_id_ = 0;
  int64_t in_engine_ = 0;
};

}  // namespace klotski
