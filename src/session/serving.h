#pragma once

// The serving experiment of MoE-Infinity (section 7.4): requests come to an engine when a recorded
// trace says so, whether or not it keeps up.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "session/arrivals.h"
#include "session/session.h"
#include "text/tokenizer.h"

namespace klotski {

// How a server shares its engine among requests.
inline constexpr EngineOptions kServingEngine{
    .pass_rows = 256, .booking = KvBooking::as_it_grows, .prefix_cache = true};

// A request with its tokens.
struct TimedRequest {
  double arrival = 0.0;  // seconds after the start
  std::vector<TokenId> prompt;
  int64_t generate = 0;  // tokens, whatever the model would end with
};

// Requests in the order in which they come.
struct ServedWork {
  std::vector<TimedRequest> requests;
  int64_t cut = 0;  // requests that were longer than the model's positions

  // The work of a server that computes `at_once` of the requests together.
  Workload workload(const ModelDescription& model, int64_t at_once) const;
};

// Prompts of a text for the lengths of a trace, which are multiplied by `length_scale`. Prompts
// begin with equal tokens where the trace says so and only there: every block is a stretch of the
// text after two tokens that spell its id. An answer is cut at half of the model's positions, a
// prompt at those that its answer leaves.
ServedWork work_from_arrivals(std::span<const Arrival> arrivals, double length_scale,
                              std::span<const TokenId> text, const ModelDescription& model);

// Time as a replay knows it; tests have a clock of their own.
class ReplayClock {
 public:
  virtual ~ReplayClock() = default;
  virtual double seconds() = 0;
  virtual void wait_until(double seconds) = 0;
};

class SteadyClock final : public ReplayClock {
 public:
  double seconds() override;
  void wait_until(double seconds) override;

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A request that was answered. Times are seconds after its arrival.
struct ServedRequest {
  double first_token = 0.0;
  double last_token = 0.0;
  std::vector<TokenId> tokens;

  // Seconds a token after the first one; none where there is no other.
  std::optional<double> per_token() const;
};

// Plan, times and output of one replay.
struct ServingMeasurement {
  RunPlan plan;
  PipelineReport report;
  EngineCounters counters;
  double seconds = 0.0;  // from the start to the last token
  std::vector<ServedRequest> requests;
};

// Plans and loads the session as a server does and sends it the requests at their times, greedily.
// `ended` is told after each pass how many requests have ended. The model stays loaded.
ServingMeasurement measure_serving(Session& session, const ServedWork& work, int64_t at_once,
                                   ReplayClock& clock,
                                   const std::function<void(size_t ended)>& ended = {});

// Within which times a request counts as served well.
struct ServingTarget {
  double first_token = 1.0;  // seconds
  double per_token = 0.1;
};

struct Quantiles {
  double median = 0.0;
  double p99 = 0.0;
};
// The smallest value that so large a share of all values does not exceed; 0 where there are none.
Quantiles quantiles_of(std::vector<double> values);

// Figures that the users of a server notice.
struct ServingFigures {
  Quantiles first_token;  // seconds, over all requests
  Quantiles per_token;    // over those with several tokens
  double requests_per_second = 0.0;
  double tokens_per_second = 0.0;
  int64_t within_target = 0;  // requests
  double goodput = 0.0;       // requests within the target, a second
};
ServingFigures figures_of(const ServingMeasurement& measured, const ServingTarget& target);

}  // namespace klotski
