#include "cli/hints.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "weights/model_folder.h"

namespace klotski {

namespace {

constexpr size_t kLongestName = 64;  // bytes; a longer text is no misspelt name

// Letters to change, add, drop or swap with their neighbour until the two texts are equal.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> steps(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        steps[i][j] = i + j;
        continue;
      }
      const size_t changed = steps[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      steps[i][j] = std::min({changed, steps[i - 1][j] + 1, steps[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        steps[i][j] = std::min(steps[i][j], steps[i - 2][j - 2] + 1);
      }
    }
  }
  return steps[a.size()][b.size()];
}

bool names_model(std::string_view argument) {
  constexpr std::string_view kGguf = ".gguf";
  if (argument.size() > kGguf.size() && argument.substr(argument.size() - kGguf.size()) == kGguf) {
    return true;
  }
  try {
    find_model(argument);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::optional<std::string> nearest_name(std::string_view misspelt,
                                        std::span<const std::string> names) {
  std::optional<std::string> nearest;
  size_t fewest = std::max<size_t>(1, misspelt.size() / 3);
  if (misspelt.empty() || misspelt.size() > kLongestName) return nearest;
  for (const std::string& name : names) {
    const size_t distance = edit_distance(misspelt, name);
    if (distance > fewest || (nearest && distance == fewest)) continue;
    fewest = distance;
    nearest = name;
  }
  return nearest;
}

std::string command_hint(std::string_view argument, std::span<const std::string> commands) {
  if (names_model(argument)) {
    return fmt::format("; to run a model: klotski run {}", in_quotes(argument));
  }
  const std::optional<std::string> nearest = nearest_name(argument, commands);
  return nearest ? fmt::format("; did you mean {}?", *nearest) : "";
}

}  // namespace klotski
