#include "probe/history.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "kernels/ops.h"
#include "probe/cache_file.h"
#include "probe/fingerprint.h"
#include "probe/probe.h"

namespace klotski {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostFileBytes = kMiB;
constexpr uint64_t kMostReadBytes = 2 * kMiB;  // somebody else may have made the file larger

std::optional<fs::path> history_path() {
  const std::optional<fs::path> folder = cache_folder();
  if (!folder) return std::nullopt;
  return *folder / "history.jsonl";
}

// The last bytes of a file; nothing where it cannot be read.
std::string tail_of(const fs::path& path, uint64_t most_bytes) {
  try {
    const File file(path);
    std::string text(std::min(file.size(), most_bytes), '\0');
    file.read_at(file.size() - text.size(), std::as_writable_bytes(std::span(text)));
    return text;
  } catch (const Error&) {
    return {};
  }
}

bool ends_within_a_line(int descriptor, off_t size) {
  char last = '\n';
  return size > 0 && ::pread(descriptor, &last, 1, size - 1) == 1 && last != '\n';
}

struct Appended {
  uint64_t bytes_before = 0;
  std::string why_not{};  // empty: the line was written
};

Appended append(const fs::path& path, std::string line) {
  const auto failed = [&](const char* why) {
    return fmt::format("{}: {}", path_in_quotes(path), why);
  };
  // O_NONBLOCK: a FIFO of this name must not wait for a reader.
  const int descriptor =
      ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
  if (descriptor < 0) return {.why_not = failed(std::strerror(errno))};
  Appended appended{.why_not = failed("not a regular file")};
  struct stat status {};
  if (::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode)) {
    appended = {.bytes_before = static_cast<uint64_t>(status.st_size)};
    // A record torn by a full disk is lost alone: this one begins on a line of its own.
    if (ends_within_a_line(descriptor, status.st_size)) line.insert(0, "\n");
    const ssize_t written = ::write(descriptor, line.data(), line.size());
    if (written < 0) {
      appended.why_not = failed(std::strerror(errno));
    } else if (written < std::ssize(line)) {
      appended.why_not = failed("only a part of the line fits");
    }
  }
  ::close(descriptor);
  return appended;
}

void keep_the_newest_half(const fs::path& path) {
  std::string text = tail_of(path, kMostFileBytes / 2);
  text.erase(0, text.find('\n') + 1);  // the line that was cut
  // A file that cannot be shortened stays as it is: nothing depends on it.
  [[maybe_unused]] const std::string why_not = replace_cache_file(path, text);
}

}  // namespace

std::string machine_name(int threads) {
  return fmt::format("{}, {}, {} threads", one_line(processor_name(), 150), cpu_kernels().chosen,
                     threads);
}

std::string utc_text(std::time_t time) {
  std::tm parts{};
  std::array<char, 32> text{};
  if (::gmtime_r(&time, &parts) == nullptr) return {};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

std::string remember(const RunRecord& record) {
  const std::optional<fs::path> path = history_path();
  if (!path) return std::string(kNoCacheFolder);
  std::error_code ignored;
  fs::create_directories(path->parent_path(), ignored);
  const Appended appended = append(*path, write_run_record(record) + "\n");
  if (appended.bytes_before > kMostFileBytes) keep_the_newest_half(*path);
  return appended.why_not;
}

std::vector<RunRecord> remembered(std::string_view machine) {
  const std::optional<fs::path> path = history_path();
  if (!path) return {};
  const std::string text = tail_of(*path, kMostReadBytes);
  std::vector<RunRecord> records;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    std::optional<RunRecord> record = read_run_record(line);
    if (record && record->machine == machine) records.push_back(std::move(*record));
  }
  return records;
}

namespace {

// How long a lane worked for a byte that it moved, or in all where it moves none, as a multiple of
// the plan; nothing for a lane that the plan keeps busy for less than a tenth of the run, and for a
// run of less than a second.
std::optional<double> times_planned(const RunRecord& run, const LaneFigures& planned) {
  constexpr double kLeastShare = 0.1;
  constexpr double kLeastSeconds = 1.0;
  if (planned.busy_seconds < kLeastShare * run.planned.seconds) return std::nullopt;
  if (run.measured.seconds < kLeastSeconds) return std::nullopt;
  const LaneFigures measured = run.measured.of_lane(planned.lane);
  const bool moved = planned.bytes > 0 && measured.bytes > 0;
  const double share =
      moved ? static_cast<double>(measured.bytes) / static_cast<double>(planned.bytes) : 1.0;
  return measured_over_planned(planned.busy_seconds * share, measured.busy_seconds);
}

// Whether a lane was slower, or faster, than planned by a quarter in both of the last runs.
bool lane_is_off(std::span<const RunRecord> runs) {
  constexpr double kQuarter = 1.25;
  if (runs.size() < 2) return false;
  const RunRecord& last = runs.back();
  const RunRecord& before = runs[runs.size() - 2];
  return std::any_of(
      last.planned.lanes.begin(), last.planned.lanes.end(), [&](const LaneFigures& lane) {
        const auto now = times_planned(last, lane);
        const auto then = times_planned(before, before.planned.of_lane(lane.lane));
        if (!now || !then) return false;
        return std::min(*now, *then) > kQuarter || std::max(*now, *then) < 1.0 / kQuarter;
      });
}

// Whether of the newest runs, at most 20 and at least 5, the median was faster or slower than
// planned by a tenth.
bool tokens_are_off(std::span<const RunRecord> runs) {
  constexpr size_t kMostRuns = 20;
  constexpr size_t kLeastRuns = 5;
  constexpr double kTolerance = 0.1;
  std::vector<double> ratios;
  for (auto run = runs.rbegin(); run != runs.rend() && ratios.size() < kMostRuns; ++run) {
    const auto ratio =
        measured_over_planned(run->planned.tokens_per_second(), run->measured.tokens_per_second());
    if (ratio) ratios.push_back(*ratio);
  }
  if (ratios.size() < kLeastRuns) return false;
  std::nth_element(ratios.begin(), ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2),
                   ratios.end());
  return std::abs(ratios[ratios.size() / 2] - 1.0) > kTolerance;
}

}  // namespace

bool runs_contradict_profile(std::span<const RunRecord> runs, std::time_t measured,
                             std::time_t now) {
  constexpr std::time_t kHour = 3600;
  const std::string since = utc_text(measured);  // its form sorts by time
  const auto first = std::find_if(runs.begin(), runs.end(),
                                  [&](const RunRecord& run) { return run.when > since; });
  const auto earlier = runs.first(static_cast<size_t>(first - runs.begin()));
  const auto later = runs.subspan(earlier.size());
  const bool helps_not = now - measured < kHour && lane_is_off(earlier);
  if (lane_is_off(later) && !helps_not) return true;
  return now - measured >= kHour && tokens_are_off(later);
}

}  // namespace klotski
