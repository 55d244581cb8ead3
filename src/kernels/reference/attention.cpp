#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/reference_ops.h"

namespace klotski::reference {

namespace {

// Where position `position` of a paged row lies, for key-value head `head`.
const float* at(std::span<const float* const> pages, int64_t page_tokens, int64_t position,
                int64_t row_width, int64_t head_offset) {
  const float* page = pages[static_cast<size_t>(position / page_tokens)];
  return page + (position % page_tokens) * row_width + head_offset;
}

// scores become their softmax; a sink joins the denominator and nothing else.
void softmax(std::span<float> scores, std::span<const float> sink) {
  float largest = sink.empty() ? scores[0] : sink[0];
  for (const float score : scores) largest = std::max(largest, score);
  float sum = sink.empty() ? 0.0f : std::exp(sink[0] - largest);
  for (float& score : scores) {
    score = std::exp(score - largest);
    sum += score;
  }
  for (float& score : scores) score /= sum;
}

}  // namespace

void attention(const AttentionArguments& arguments) {
  const int64_t head_dim = arguments.queries.width / arguments.query_heads;
  const int64_t queries_per_kv = arguments.query_heads / arguments.kv_heads;
  const int64_t kv_width = arguments.kv_heads * head_dim;
  const KvPages& cache = arguments.cache;
  std::vector<float> scores;
  std::vector<int64_t> positions;

  for (int64_t token = 0; token < arguments.queries.count; ++token) {
    const VisiblePositions seen = visible_positions(arguments, token);
    positions.clear();
    for (int64_t p = seen.prefix_begin; p < seen.prefix_end; ++p) positions.push_back(p);
    for (int64_t p = seen.begin; p < seen.end; ++p) positions.push_back(p);
    for (int64_t head = 0; head < arguments.query_heads; ++head) {
      const float* query = arguments.queries.row(token) + head * head_dim;
      const int64_t kv_offset = head / queries_per_kv * head_dim;
      scores.assign(positions.size(), 0.0f);
      for (size_t i = 0; i < positions.size(); ++i) {
        const float* key = at(cache.keys, cache.page_tokens, positions[i], kv_width, kv_offset);
        float sum = 0.0f;
        for (int64_t d = 0; d < head_dim; ++d) sum += query[d] * key[d];
        scores[i] = sum * arguments.scale;
      }
      const auto sink = arguments.sinks.empty()
                            ? std::span<const float>()
                            : arguments.sinks.subspan(static_cast<size_t>(head), 1);
      softmax(scores, sink);
      float* out = arguments.output.row(token) + head * head_dim;
      std::fill_n(out, head_dim, 0.0f);
      for (size_t i = 0; i < positions.size(); ++i) {
        const float* value = at(cache.values, cache.page_tokens, positions[i], kv_width, kv_offset);
        for (int64_t d = 0; d < head_dim; ++d) out[d] += scores[i] * value[d];
      }
    }
  }
}

}  // namespace klotski::reference
