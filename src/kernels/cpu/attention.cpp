#include <algorithm>
#include <vector>

#include "kernels/cpu/cpu_ops.h"

namespace klotski::cpu {

namespace {

// The positions begin .. end - 1 as runs, one a page.
void append_runs(std::vector<KvRun>& runs, const KvPages& cache, int64_t row_width, int64_t begin,
                 int64_t end) {
  while (begin < end) {
    const auto page = static_cast<size_t>(begin / cache.page_tokens);
    const int64_t in_page = begin % cache.page_tokens;
    const int64_t count = std::min(end - begin, cache.page_tokens - in_page);
    runs.push_back(
        {cache.keys[page] + in_page * row_width, cache.values[page] + in_page * row_width, count});
    begin += count;
  }
}

}  // namespace

void attention(const Machine& with, const AttentionArguments& arguments) {
  const int64_t head_dim = arguments.queries.width / arguments.query_heads;
  const int64_t heads = arguments.query_heads / arguments.kv_heads;  // that share a key
  const int64_t kv_width = arguments.kv_heads * head_dim;
  const int64_t groups = arguments.queries.count * arguments.kv_heads;
  const int64_t cost = (arguments.first_position + arguments.queries.count) * heads * head_dim * 2;
  share_out(with, groups, cost, [&](int64_t first, int64_t last) {
    std::vector<KvRun> runs;
    std::vector<float> scores;
    for (int64_t group = first; group < last; ++group) {
      const int64_t token = group / arguments.kv_heads;
      const int64_t kv_head = group % arguments.kv_heads;
      const VisiblePositions seen = visible_positions(arguments, token);
      runs.clear();
      append_runs(runs, arguments.cache, kv_width, seen.prefix_begin, seen.prefix_end);
      append_runs(runs, arguments.cache, kv_width, seen.begin, seen.end);
      scores.resize(static_cast<size_t>(heads * seen.count()));
      with.kernels.attend(
          {.output = arguments.output.row(token) + kv_head * heads * head_dim,
           .queries = arguments.queries.row(token) + kv_head * heads * head_dim,
           .heads = heads,
           .head_dim = head_dim,
           .runs = runs.data(),
           .run_count = static_cast<int64_t>(runs.size()),
           .head_offset = kv_head * head_dim,
           .stride = kv_width,
           .positions = seen.count(),
           .scale = arguments.scale,
           .sinks = arguments.sinks.empty() ? nullptr : arguments.sinks.data() + kv_head * heads,
           .scores = scores.data()});
    }
  });
}

}  // namespace klotski::cpu
