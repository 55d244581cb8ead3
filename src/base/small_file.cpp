#include "base/small_file.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <fstream>

#include "base/bytes.h"
#include "base/numbers.h"

namespace klotski {

std::string small_file(const std::filesystem::path& path) {
  constexpr size_t kMostBytes = 64 * kKiB;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || file.gcount() > static_cast<std::streamsize>(kMostBytes)) return {};
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::optional<std::vector<int>> parse_id_list(std::string_view text) {
  constexpr uint64_t kMostIds = 65536;
  std::vector<int> ids;
  uint64_t next = 0;  // the least that may follow
  while (!text.empty()) {
    const std::string_view range = text.substr(0, text.find(','));
    const size_t dash = range.find('-');
    const auto first = parse_uint(range.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_uint(range.substr(dash + 1));
    if (!first || !last || *first < next || *last < *first || *last >= kMostIds) {
      return std::nullopt;
    }
    for (uint64_t id = *first; id <= *last; ++id) ids.push_back(static_cast<int>(id));
    next = *last + 1;
    if (range.size() == text.size()) break;
    text.remove_prefix(range.size() + 1);
    if (text.empty()) return std::nullopt;  // ends with a comma
  }
  return ids;
}

std::string format_id_list(const std::vector<int>& ids) {
  std::string text;
  for (size_t i = 0; i < ids.size();) {
    size_t end = i + 1;
    while (end < ids.size() && ids[end] == ids[end - 1] + 1) ++end;
    text += text.empty() ? "" : ",";
    text += end - i == 1 ? fmt::format("{}", ids[i]) : fmt::format("{}-{}", ids[i], ids[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace klotski
