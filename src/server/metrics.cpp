#include "server/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "base/process_memory.h"

namespace klotski {

namespace {

constexpr std::chrono::seconds kRecent(5);

std::string head(std::string_view name, std::string_view type, std::string_view help) {
  return fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
}

std::string single(std::string_view name, std::string_view type, std::string_view help,
                   int64_t value) {
  return head(name, type, help) + fmt::format("{} {}\n", name, value);
}

// A label's value: lanes and memories have plain names, but nothing may break the format.
std::string label(std::string_view value) {
  std::string safe;
  for (const char c : value) {
    if (c == '\n') continue;
    if (c == '\\' || c == '"') safe += '\\';
    safe += c;
  }
  return safe;
}

std::string engine_text(const EngineFigures& engine) {
  std::string text =
      single("klotski_running", "gauge", "Sequences that the engine computes.", engine.running) +
      single("klotski_queue", "gauge", "Sequences that wait for room.", engine.waiting) +
      single("klotski_passes_total", "counter", "Passes through the model.", engine.passes) +
      single("klotski_experts_found_total", "counter",
             "Experts that were in fast memory when a pass asked for them.", engine.experts_found) +
      single("klotski_experts_asked_total", "counter", "Experts that passes asked for.",
             engine.experts_asked) +
      head("klotski_lane_bytes_total", "counter", "Bytes moved between memories, by lane.");
  for (const EngineFigures::Lane& lane : engine.lanes) {
    text +=
        fmt::format("klotski_lane_bytes_total{{lane=\"{}\"}} {}\n", label(lane.name), lane.bytes);
  }
  text += head("klotski_memory_bytes", "gauge", "Bytes reserved of a memory.");
  for (const EngineFigures::Memory& memory : engine.memories) {
    text += fmt::format("klotski_memory_bytes{{memory=\"{}\"}} {}\n", label(memory.name),
                        memory.used_bytes);
  }
  text += head("klotski_memory_limit_bytes", "gauge", "Bytes of a memory that may be used.");
  for (const EngineFigures::Memory& memory : engine.memories) {
    text += fmt::format("klotski_memory_limit_bytes{{memory=\"{}\"}} {}\n", label(memory.name),
                        memory.limit_bytes);
  }
  return text;
}

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
  std::string text = head("klotski_requests_total", "counter", "Responses by path and status.");
  for (const auto& [key, count] : responses_) {
    text += fmt::format("klotski_requests_total{{path=\"{}\",status=\"{}\"}} {}\n", key.first,
                        key.second, count);
  }
  text += single("klotski_prompt_tokens_total", "counter", "Tokens of prompts that were begun.",
                 prompt_tokens_);
  text +=
      single("klotski_generated_tokens_total", "counter", "Tokens generated.", generated_tokens_);
  text += single("klotski_cancelled_total", "counter",
                 "Sequences that ended before their time: client gone, too slow, or too late.",
                 cancelled_);
  text += single("klotski_connections", "gauge", "Open connections.", connections);
  text += single("klotski_resident_bytes", "gauge", "Memory of the process.",
                 static_cast<int64_t>(resident_bytes()));
  text += head("klotski_time_to_first_token_seconds", "histogram",
               "Seconds from a request's arrival to its first token.");
  text += first_token_.text("klotski_time_to_first_token_seconds");
  text += head("klotski_time_per_token_seconds", "histogram",
               "Seconds between the tokens of a sequence.");
  text += next_token_.text("klotski_time_per_token_seconds");
  return text + engine_text(engine_);
}

OrderedJson Metrics::stats(Clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  OrderedJson lanes = OrderedJson::array();
  for (const auto& lane : engine_.lanes)
    lanes.push_back({{"name", lane.name}, {"bytes", lane.bytes}});
  OrderedJson memories = OrderedJson::array();
  for (const auto& memory : engine_.memories) {
    memories.push_back({{"name", memory.name},
                        {"used_bytes", memory.used_bytes},
                        {"limit_bytes", memory.limit_bytes}});
  }
  return {{"tokens_per_second", tokens_per_second(now)},
          {"prompt_tokens", prompt_tokens_},
          {"generated_tokens", generated_tokens_},
          {"running", engine_.running},
          {"queue", engine_.waiting},
          {"passes", engine_.passes},
          {"experts_found", engine_.experts_found},
          {"experts_asked", engine_.experts_asked},
          {"resident_bytes", resident_bytes()},
          {"lanes", std::move(lanes)},
          {"memories", std::move(memories)}};
}

}  // namespace klotski
