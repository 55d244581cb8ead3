#include "schedule/pages.h"

#include <algorithm>

namespace klotski {

namespace {

constexpr uint64_t kPageAlignment = 4096;  // bytes; alignment of a page's begin, for fast copies

}  // namespace

PageTable page_table(std::span<const PagedUnit> units, int64_t pages) {
  uint64_t total = 0;
  for (const PagedUnit& unit : units) total += unit.bytes;
  const auto count = static_cast<uint64_t>(pages);
  const uint64_t page_bytes =
      ((total + count - 1) / count + kPageAlignment - 1) / kPageAlignment * kPageAlignment;
  PageTable table(count);
  uint64_t begin = 0;  // first byte of the unit among the layer's
  for (const PagedUnit& unit : units) {
    for (uint64_t offset = 0; offset < unit.bytes;) {
      const uint64_t page = (begin + offset) / page_bytes;
      const uint64_t page_end = (page + 1) * page_bytes;
      const uint64_t bytes = std::min(unit.bytes - offset, page_end - begin - offset);
      table[page].push_back({unit.unit, offset, bytes});
      offset += bytes;
    }
    begin += unit.bytes;
  }
  return table;
}

}  // namespace klotski
