#include <algorithm>

#include "kernels/ops.h"

namespace klotski {

VisiblePositions visible_positions(const AttentionArguments& arguments, int64_t token) {
  const int64_t own = arguments.first_position + token;
  const int64_t end = arguments.seen_end > 0 ? arguments.seen_end : own + 1;
  const int64_t in_window = arguments.window > 0 ? std::max<int64_t>(0, end - arguments.window) : 0;
  const int64_t in_chunk =
      arguments.chunk > 0 ? std::max(in_window, own - own % arguments.chunk) : in_window;
  const int64_t first = std::max(in_chunk, arguments.seen_begin);
  const KvPages& cache = arguments.cache;
  if (cache.kept_window == 0) {
    return {.prefix_begin = first, .prefix_end = first, .begin = first, .end = end};
  }
  const int64_t begin = std::max(first, end - cache.kept_window);
  const int64_t prefix_end = std::max(first, std::min(cache.kept_prefix, begin));
  return {.prefix_begin = first, .prefix_end = prefix_end, .begin = begin, .end = end};
}

}  // namespace klotski
