#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "server/engine_figures.h"

namespace klotski {

// How many of a kind of durations fell below each of a row of bounds, in seconds.
class DurationHistogram {
 public:
  static constexpr std::array kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                         0.5,   1.0,    2.5,   5.0,  10.0,  30.0, 60.0};
  void add(double seconds);
  // Lines of Prometheus' text format, with the sum and the count.
  std::string text(std::string_view name) const;

 private:
  std::array<int64_t, kBounds.size() + 1> counts_{};  // the last: longer than every bound
  double sum_ = 0.0;
};

// Everything that a server counts. Any thread may call every member.
class Metrics {
 public:
  using Clock = std::chrono::steady_clock;

  void count_response(std::string_view path, int status);
  void count_prompt(int64_t tokens);
  void count_tokens(int64_t tokens, Clock::time_point now);
  void count_cancelled();
  void first_token_after(double seconds);
  void next_token_after(double seconds);
  // The server's own delay of a streamed event: from the engine's token to the socket.
  void delivered_after(double seconds);
  void set_engine(EngineFigures figures);

  // Prometheus' text format, version 0.0.4.
  std::string prometheus(int64_t connections) const;
  // The figures of the dashboard.
  OrderedJson stats(Clock::time_point now) const;

 private:
  double tokens_per_second(Clock::time_point now) const;

  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> responses_;  // by path and status
  int64_t prompt_tokens_ = 0;
  int64_t generated_tokens_ = 0;
  int64_t cancelled_ = 0;
  DurationHistogram first_token_;
  DurationHistogram next_token_;
  DurationHistogram delivery_;
  EngineFigures engine_;
  std::deque<std::pair<Clock::time_point, int64_t>> recent_;  // tokens of the last seconds
};

}  // namespace klotski
