#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/text_stream.h"
#include "server/generation_stream.h"
#include "server/metrics.h"
#include "server/served_model.h"
#include "session/session.h"

namespace klotski {

// A request on its way to the engine.
struct GenerationJob {
  using Clock = std::chrono::steady_clock;

  std::vector<PreparedChoice> choices;
  std::shared_ptr<GenerationStream> stream;
  Clock::time_point arrival = Clock::now();
  std::optional<Clock::time_point> deadline{};
};

enum class EngineState { loading, ready, stopped };

// The thread that alone uses the session. Requests reach it through a mailbox of bounded size and
// join the engine between two passes; a request that nobody waits for any more, or whose deadline
// has passed, leaves it there.
class EngineThread {
 public:
  using Streams = std::vector<std::shared_ptr<GenerationStream>>;

  struct Options {
    int64_t most_waiting = 256;  // choices that were accepted and are not computed yet
    // Makes a loaded session, on the engine's thread.
    std::function<std::unique_ptr<Session>()> open_session;
    std::function<void()> loaded{};           // after open_session
    std::function<void()> stopped{};          // the thread ends; failure() says why
    std::function<void(Streams)> notify{};    // streams that have something to take
    std::function<void(Session&)> closing{};  // before the session goes
  };

  // The references must live longer.
  EngineThread(const ServedModel& served, Metrics& metrics, Options options);
  ~EngineThread();  // stops
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  void start();
  EngineState state() const;
  // Whether `choices` more would be accepted now.
  bool has_room(int64_t choices) const;
  // Whether any choice is unfinished.
  bool busy() const;

  // Throws ApiError where the queue is full or the engine does not take requests.
  void submit(GenerationJob job);

  // Ends the thread after the pass at hand; unfinished requests fail. Waits for its end.
  void stop();
  // The exception that ended the thread; null: there was none.
  std::exception_ptr failure() const;

 private:
  // A choice that the engine works on.
  struct Running {
    std::shared_ptr<GenerationStream> stream;
    size_t choice = 0;
    TextStream text;
    int64_t prompt_tokens = 0;
    int64_t tokens = 0;
    GenerationJob::Clock::time_point arrival;
    GenerationJob::Clock::time_point last_token;
    std::optional<GenerationJob::Clock::time_point> deadline;
  };

  void work();
  void serve(Session& session);
  std::optional<std::vector<GenerationJob>> next_jobs(bool wait);
  void begin(Engine& engine, GenerationJob job);
  void drop_unwanted(Engine& engine);
  void drop(Engine& engine, SequenceId id);
  void take(Engine& engine, const Progress& progress);
  void time_token(Running& running);
  void publish(Session& session, bool at_once);
  void fail_all(const ApiError& error);
  void wake_readers();

  const ServedModel& served_;
  Metrics& metrics_;
  const Options options_;

  mutable std::mutex mutex_;
  std::condition_variable wakes_;
  std::vector<GenerationJob> mailbox_;
  int64_t posted_choices_ = 0;      // in the mailbox
  int64_t waiting_choices_ = 0;     // in the engine, and not admitted
  int64_t unfinished_choices_ = 0;  // in the engine
  EngineState state_ = EngineState::loading;
  bool stop_asked_ = false;
  std::exception_ptr failure_;

  // For the thread itself.
  std::map<SequenceId, Running> running_;
  Streams touched_;  // since readers were woken
  GenerationJob::Clock::time_point published_{};

  std::thread thread_;
};

}  // namespace klotski
