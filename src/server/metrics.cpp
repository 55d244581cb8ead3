#include "server/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "base/process_memory.h"

namespace klotski {

namespace {

constexpr std::chrono::seconds kRecent(5);

}  // namespace

void DurationHistogram::add(double seconds) {
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  ++counts_[static_cast<size_t>(bound - kBounds.begin())];
  sum_ += seconds;
}

std::string DurationHistogram::text(std::string_view name) const {
  std::string text;
  int64_t below = 0;
  for (size_t i = 0; i < kBounds.size(); ++i) {
    below += counts_[i];
    text += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, kBounds[i], below);
  }
  below += counts_.back();
  return text + fmt::format("{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name,
                            below, sum_);
}

void Metrics::count_response(std::string_view path, int status) {
  const std::lock_guard lock(mutex_);
  ++responses_[{std::string(path), status}];
}

void Metrics::count_prompt(int64_t tokens) {
  const std::lock_guard lock(mutex_);
  prompt_tokens_ += tokens;
}

void Metrics::count_tokens(int64_t tokens, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  generated_tokens_ += tokens;
  recent_.emplace_back(now, tokens);
  while (recent_.front().first + kRecent < now) recent_.pop_front();
}

void Metrics::count_cancelled() {
  const std::lock_guard lock(mutex_);
  ++cancelled_;
}

void Metrics::first_token_after(double seconds) {
  const std::lock_guard lock(mutex_);
  first_token_.add(seconds);
}

void Metrics::next_token_after(double seconds) {
  const std::lock_guard lock(mutex_);
  next_token_.add(seconds);
}

void Metrics::delivered_after(double seconds) {
  const std::lock_guard lock(mutex_);
  delivery_.add(seconds);
}

void Metrics::set_engine(EngineFigures figures) {
  const std::lock_guard lock(mutex_);
  engine_ = std::move(figures);
}

double Metrics::tokens_per_second(Clock::time_point now) const {
  int64_t tokens = 0;
  for (const auto& [time, count] : recent_) {
    if (time + kRecent >= now) tokens += count;
  }
  return static_cast<double>(tokens) / std::chrono::duration<double>(kRecent).count();
}

std::string Metrics::prometheus(int64_t connections) const {
  const std::lock_guard lock(mutex_);
  std::string text =
      prometheus_head("klotski_requests_total", "counter", "Responses by path and status.");
  for (const auto& [key, count] : responses_) {
    text += fmt::format("klotski_requests_total{{path=\"{}\",status=\"{}\"}} {}\n", key.first,
                        key.second, count);
  }
  text += prometheus_sample("klotski_prompt_tokens_total", "counter",
                            "Tokens of prompts that were begun.", prompt_tokens_);
  text += prometheus_sample("klotski_generated_tokens_total", "counter", "Tokens generated.",
                            generated_tokens_);
  text += prometheus_sample(
      "klotski_cancelled_total", "counter",
      "Sequences that ended before their time: client gone, too slow, or too late.", cancelled_);
  text += prometheus_sample("klotski_connections", "gauge", "Open connections.", connections);
  text += prometheus_sample("klotski_resident_bytes", "gauge", "Memory of the process.",
                            static_cast<int64_t>(resident_bytes()));
  text += prometheus_head("klotski_time_to_first_token_seconds", "histogram",
                          "Seconds from a request's arrival to its first token.");
  text += first_token_.text("klotski_time_to_first_token_seconds");
  text += prometheus_head("klotski_time_per_token_seconds", "histogram",
                          "Seconds between the tokens of a sequence.");
  text += next_token_.text("klotski_time_per_token_seconds");
  text += prometheus_head("klotski_delivery_seconds", "histogram",
                          "Seconds from the engine's token to the socket, by streamed event.");
  text += delivery_.text("klotski_delivery_seconds");
  return text + prometheus_text(engine_);
}

OrderedJson Metrics::stats(Clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  OrderedJson stats = {{"tokens_per_second", tokens_per_second(now)},
                       {"prompt_tokens", prompt_tokens_},
                       {"generated_tokens", generated_tokens_},
                       {"cancelled", cancelled_},
                       {"resident_bytes", resident_bytes()}};
  stats.update(stats_of(engine_));
  return stats;
}

}  // namespace klotski
