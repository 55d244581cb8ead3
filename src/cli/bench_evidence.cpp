#include "cli/bench_evidence.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/bytes.h"
#include "base/cpu_limit.h"
#include "base/error.h"
#include "cli/commit.h"
#include "device/device.h"
#include "probe/history.h"

namespace klotski {

namespace {

constexpr size_t kMostCommandBytes = 8192;

// A word of the command line as a shell takes it.
std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@%^";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// The command line of this process, its program without a folder.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text;
  for (std::string word; std::getline(file, word, '\0');) {
    const bool program = text.empty();
    text += program ? shell_word(std::filesystem::path(word).filename()) : " " + shell_word(word);
  }
  return text.empty() ? "unknown" : one_line(text, kMostCommandBytes);
}

std::string machine_in_words(const Session& session) {
  const auto pages = static_cast<uint64_t>(std::max(0L, ::sysconf(_SC_PHYS_PAGES)));
  const auto page_bytes = static_cast<uint64_t>(std::max(0L, ::sysconf(_SC_PAGESIZE)));
  std::string text =
      fmt::format("{}, {} RAM", machine_name(usable_cpus()), format_bytes(pages * page_bytes));
  if (const Device* device = session.device()) {
    const DeviceInfo& info = device->info();
    text += fmt::format("; {}, {}", one_line(info.name, 150), format_bytes(info.total_bytes));
  }
  return text;
}

// From the lowest figure to the highest, in percent of the median.
double spread_percent(std::vector<double> figures) {
  std::sort(figures.begin(), figures.end());
  return 100.0 * (figures.back() - figures.front()) / figures[figures.size() / 2];
}

}  // namespace

Json evidence_of(const RunsOfSettings& runs, const Session& session) {
  size_t fewest = runs.front().size();
  size_t most = 0;
  double spread = 0.0;
  for (const std::vector<double>& of_setting : runs) {
    fewest = std::min(fewest, of_setting.size());
    most = std::max(most, of_setting.size());
    spread = std::max(spread, spread_percent(of_setting));
  }
  return {{"commit", commit_of_program()},
          {"command", command_line()},
          {"machine", machine_in_words(session)},
          {"repetitions",
           fewest == most ? Json(most) : Json(fmt::format("{} to {} runs", fewest, most))},
          {"spread", most > 1 ? Json(spread) : Json("one run")}};
}

}  // namespace klotski
