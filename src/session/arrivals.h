#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace klotski {

// A request of a recorded trace: when it came to a server, and how long it was.
struct Arrival {
  double seconds = 0.0;  // after the first request of the trace
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  // One id for each kBlockTokens of the prompt, the last of which may be fewer: prompts whose first
  // ids are equal begin with the same tokens. Empty: the trace does not tell.
  std::vector<int64_t> blocks{};

  bool operator==(const Arrival&) const = default;
};

inline constexpr int64_t kBlockTokens = 512;  // in Mooncake's traces

// Reads a trace in Azure's form (CSV with the columns TIMESTAMP,ContextTokens,GeneratedTokens) or
// in Mooncake's (in every line a JSON object with timestamp in milliseconds, input_length,
// output_length and hash_ids). Refuses (usage) a text in no such form, a trace without requests and
// times that go back; errors begin with `what`.
std::vector<Arrival> read_arrivals(std::string_view text, std::string_view what);

// Requests a second between the first and the last one; 0 where they all come at once.
double arrival_rate(std::span<const Arrival> arrivals);

// Stretches or shortens all pauses alike, so that the requests come at this rate on average.
// Requests that come at once stay so.
void set_arrival_rate(std::span<Arrival> arrivals, double requests_per_second);

}  // namespace klotski
