#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/reference_processor.h"
#include "kernels/reference/weight_row.h"
#include "tensor/half.h"

namespace klotski::reference {

namespace {

// Where the keys or values of one head lie: heads are `stride` numbers apart.
struct CachedHeads {
  std::span<std::byte* const> pages;
  const KvPages& cache;
  int64_t kv_heads;
  int64_t stride;

  // Reads the first numbers of one position and key-value head out of its page.
  void read(std::span<float> head, int64_t position, int64_t kv_head) const {
    const TensorView page = {.data = pages[static_cast<size_t>(position / cache.page_tokens)],
                             .dtype = cache.type,
                             .shape = {},
                             .row_stride = stride * bytes_per_element(cache.type)};
    load_row(page, position % cache.page_tokens * kv_heads + kv_head, head);
  }
};

// The query as the product with a key sees it.
std::vector<float> query_of(const AttentionArguments& arguments, int64_t token, int64_t head) {
  const int64_t head_dim = arguments.head_dim();
  const float* begin = arguments.queries.row(token) + head * head_dim;
  std::vector<float> query(begin, begin + head_dim);
  if (arguments.precision == Precision::bf16 && arguments.cache.type == DType::BF16) {
    for (float& value : query) value = rounded_to_bf16(value);
  }
  return query;
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

void attend(const AttentionArguments& arguments) {
  const int64_t value_dim = arguments.value_dim();
  const int64_t queries_per_kv = arguments.query_heads / arguments.kv_heads;
  const KvPages& cache = arguments.cache;
  const CachedHeads keys{cache.keys, cache, arguments.kv_heads, arguments.head_dim()};
  const CachedHeads values{arguments.value_pages(), cache, arguments.kv_heads,
                           arguments.value_stride()};
  std::vector<float> scores;
  std::vector<float> key(static_cast<size_t>(arguments.head_dim()));
  std::vector<float> value(static_cast<size_t>(value_dim));
  std::vector<int64_t> positions;

  for (int64_t token = 0; token < arguments.queries.count; ++token) {
    const VisiblePositions seen = visible_positions(arguments, token);
    positions.clear();
    for (int64_t p = seen.prefix_begin; p < seen.prefix_end; ++p) positions.push_back(p);
    for (int64_t p = seen.begin; p < seen.end; ++p) positions.push_back(p);
    for (int64_t head = 0; head < arguments.query_heads; ++head) {
      const std::vector<float> query = query_of(arguments, token, head);
      const int64_t kv_head = head / queries_per_kv;
      scores.assign(positions.size(), 0.0f);
      for (size_t i = 0; i < positions.size(); ++i) {
        keys.read(key, positions[i], kv_head);
        float sum = 0.0f;
        for (size_t d = 0; d < key.size(); ++d) sum += query[d] * key[d];
        scores[i] = sum * arguments.scale;
        if (!arguments.position_bias.empty()) {
          scores[i] += arguments.bias(head, token, positions[i]);
        }
      }
      const auto sink = arguments.sinks.empty()
                            ? std::span<const float>()
                            : arguments.sinks.subspan(static_cast<size_t>(head), 1);
      softmax(scores, sink);
      float* out = arguments.output.row(token) + head * value_dim;
      std::fill_n(out, value_dim, 0.0f);
      for (size_t i = 0; i < positions.size(); ++i) {
        values.read(value, positions[i], kv_head);
        for (size_t d = 0; d < value.size(); ++d) out[d] += scores[i] * value[d];
      }
    }
  }
}

}  // namespace

void ReferenceProcessor::attention(std::span<const AttentionArguments> sequences) const {
  for (const AttentionArguments& arguments : sequences) attend(arguments);
}

}  // namespace klotski::reference
