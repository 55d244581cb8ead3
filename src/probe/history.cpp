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

bool runs_contradict_profile(const std::vector<RunRecord>& runs, std::time_t measured,
                             std::time_t now) {
  constexpr std::time_t kLeastAge = 3600;  // seconds
  constexpr size_t kMostRuns = 20;
  constexpr size_t kLeastRuns = 5;
  constexpr double kTolerance = 0.1;
  if (now - measured < kLeastAge) return false;
  const std::string since = utc_text(measured);  // its form sorts by time
  std::vector<double> ratios;
  for (auto run = runs.rbegin(); run != runs.rend() && ratios.size() < kMostRuns; ++run) {
    if (run->when <= since) continue;
    const auto ratio =
        measured_over_planned(run->planned.tokens_per_second(), run->measured.tokens_per_second());
    if (ratio) ratios.push_back(*ratio);
  }
  if (ratios.size() < kLeastRuns) return false;
  std::nth_element(ratios.begin(), ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2),
                   ratios.end());
  return std::abs(ratios[ratios.size() / 2] - 1.0) > kTolerance;
}

}  // namespace klotski
