#include "session/arrivals.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "base/numbers.h"

namespace klotski {

namespace {

constexpr std::string_view kAzureColumns = "TIMESTAMP,ContextTokens,GeneratedTokens";
constexpr int64_t kMostTokens = 1 << 24;  // of a prompt or an answer
constexpr int64_t kMostMilliseconds = int64_t{1} << 45;
constexpr size_t kTicksDigits = 7;  // a tick is 100 ns
constexpr int64_t kTicksPerSecond = 10'000'000;
constexpr int64_t kTicksPerMillisecond = kTicksPerSecond / 1000;

// One line of a trace, for messages.
struct TraceLine {
  std::string_view what;
  int64_t number = 0;
  std::string_view text;

  [[noreturn]] void refuse(std::string_view expected) const {
    fail(ErrorKind::usage, "{} line {}: expected {}, found {}", what, number, expected,
         in_quotes(text));
  }
  int64_t checked(std::optional<int64_t> value, std::string_view name, int64_t least,
                  int64_t most) const {
    if (!value || *value < least || *value > most) {
      refuse(fmt::format("{} from {} to {}", name, least, most));
    }
    return *value;
  }
};

std::string_view without_line_end(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// Ticks since 1970 of a time in UTC such as 2023-11-16 18:17:03.9799600, which may end with +00:00.
std::optional<int64_t> parse_ticks(std::string_view text) {
  constexpr std::string_view kForm = "0000-00-00 00:00:00";
  if (text.ends_with("+00:00")) text.remove_suffix(6);
  if (text.size() < kForm.size()) return std::nullopt;
  for (size_t i = 0; i < kForm.size(); ++i) {
    if (kForm[i] != '0' && text[i] != kForm[i]) return std::nullopt;
  }
  std::string fraction(text.substr(kForm.size()));
  if (!fraction.empty() && (fraction.front() != '.' || !parse_uint(fraction.substr(1)))) {
    return std::nullopt;
  }
  fraction.resize(1 + kTicksDigits, '0');
  const auto number = [&](size_t at, size_t digits) {
    return parse_uint(text.substr(at, digits)).value_or(UINT16_MAX);
  };
  const std::chrono::year_month_day day(std::chrono::year(static_cast<int>(number(0, 4))),
                                        std::chrono::month(static_cast<unsigned>(number(5, 2))),
                                        std::chrono::day(static_cast<unsigned>(number(8, 2))));
  const uint64_t hour = number(11, 2);
  const uint64_t minute = number(14, 2);
  const uint64_t second = number(17, 2);
  if (!day.ok() || number(0, 4) > 9999 || hour > 23 || minute > 59 || second > 60) {
    return std::nullopt;
  }
  const auto days = static_cast<int64_t>(std::chrono::sys_days(day).time_since_epoch().count());
  const int64_t seconds = days * 86400 + static_cast<int64_t>(hour * 3600 + minute * 60 + second);
  return seconds * kTicksPerSecond +
         parse_int(std::string_view(fraction).substr(1, kTicksDigits)).value_or(0);
}

// Requests with their times in ticks.
struct TimedArrival {
  int64_t ticks = 0;
  Arrival arrival;
};

TimedArrival azure_arrival(const TraceLine& line) {
  std::array<std::string_view, 3> fields;
  std::string_view rest = line.text;
  for (size_t i = 0; i < fields.size(); ++i) {
    const size_t end = i + 1 < fields.size() ? rest.find(',') : rest.size();
    if (end == std::string_view::npos) line.refuse(kAzureColumns);
    fields[i] = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const std::optional<int64_t> ticks = parse_ticks(fields[0]);
  if (!ticks) line.refuse("a time such as 2023-11-16 18:17:03.9799600");
  return {
      *ticks,
      {.prompt_tokens = line.checked(parse_int(fields[1]), "ContextTokens", 1, kMostTokens),
       .generated_tokens = line.checked(parse_int(fields[2]), "GeneratedTokens", 1, kMostTokens)}};
}

std::optional<int64_t> as_integer(const Json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return std::nullopt;
  return value.get<int64_t>();
}

TimedArrival mooncake_arrival(const TraceLine& line) {
  const Json object = parse_json(line.text, fmt::format("{} line {}", line.what, line.number),
                                 ErrorKind::usage, {.max_depth = 2});
  const auto integer = [&](const char* name, int64_t least, int64_t most) {
    const auto found = object.find(name);
    return line.checked(found == object.end() ? std::nullopt : as_integer(*found), name, least,
                        most);
  };
  if (!object.is_object()) line.refuse("a JSON object");
  TimedArrival timed{integer("timestamp", 0, kMostMilliseconds) * kTicksPerMillisecond,
                     {.prompt_tokens = integer("input_length", 1, kMostTokens),
                      .generated_tokens = integer("output_length", 1, kMostTokens)}};
  const auto blocks = object.find("hash_ids");
  if (blocks == object.end()) return timed;
  const int64_t expected = (timed.arrival.prompt_tokens + kBlockTokens - 1) / kBlockTokens;
  if (!blocks->is_array() || static_cast<int64_t>(blocks->size()) != expected) {
    line.refuse(fmt::format("{} hash_ids, one for {} tokens", expected, kBlockTokens));
  }
  for (const Json& id : *blocks) {
    timed.arrival.blocks.push_back(line.checked(as_integer(id), "hash_ids", 0, INT64_MAX));
  }
  return timed;
}

}  // namespace

std::vector<Arrival> read_arrivals(std::string_view text, std::string_view what) {
  const bool azure = text.starts_with(kAzureColumns);
  if (!azure && !text.starts_with('{')) {
    fail(ErrorKind::usage,
         "{}: expected a trace of Azure (its first line is {}) or of Mooncake (JSON objects), "
         "found {}",
         what, kAzureColumns, in_quotes(text.substr(0, text.find('\n'))));
  }
  std::vector<Arrival> arrivals;
  int64_t first = 0;
  int64_t last = INT64_MIN;
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const TraceLine line{what, ++number, without_line_end(text.substr(0, end))};
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.text.empty() || (azure && number == 1)) continue;
    TimedArrival timed = azure ? azure_arrival(line) : mooncake_arrival(line);
    if (timed.ticks < last) line.refuse("a time that is not before that of the last request");
    last = timed.ticks;
    if (arrivals.empty()) first = last;
    timed.arrival.seconds =
        static_cast<double>(last - first) / static_cast<double>(kTicksPerSecond);
    arrivals.push_back(std::move(timed.arrival));
  }
  if (arrivals.empty()) fail(ErrorKind::usage, "{}: expected requests, found none", what);
  return arrivals;
}

double arrival_rate(std::span<const Arrival> arrivals) {
  if (arrivals.empty()) return 0.0;
  const double seconds = arrivals.back().seconds - arrivals.front().seconds;
  return seconds > 0.0 ? static_cast<double>(arrivals.size() - 1) / seconds : 0.0;
}

void set_arrival_rate(std::span<Arrival> arrivals, double requests_per_second) {
  const double factor = arrival_rate(arrivals) / requests_per_second;
  for (Arrival& arrival : arrivals) arrival.seconds *= factor;
}

}  // namespace klotski
