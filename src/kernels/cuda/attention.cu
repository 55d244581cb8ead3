#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/attention_cuda.h"
#include "kernels/cuda/warp_cuda.h"

namespace klotski::cuda {

namespace {

constexpr int kWarps = 4;
// Most tokens for which a pass over the keys and values for each token costs less than rows left
// empty.
constexpr int kFewTokens = 8;

struct PlainWork {
  int sequence;
  int token;
};

struct PlainLists {
  const AttentionSequence* sequences;
  const std::byte* const* pages;
  const PlainWork* work;
  int64_t count;
};

// One warp: one query. Lanes are positions where scores are computed, and elements of the output,
// which lies in its own place in memory, where values are added to it.
template <typename Element>
class PlainQuery {
 public:
  __device__ PlainQuery(const AttentionShape& shape, const PlainLists& lists, int64_t query)
      : shape_(shape), pages_(lists.pages) {
    const PlainWork work = lists.work[query / shape.query_heads];
    sequence_ = lists.sequences[work.sequence];
    head_ = static_cast<int>(query % shape.query_heads);
    lane_ = static_cast<int>(threadIdx.x) % 32;
    own_ = sequence_.first_position + work.token;
    const int64_t query_head = work.token * shape.query_heads + head_;
    query_ = sequence_.queries + query_head * shape.head_dim;
    output_ = sequence_.output + query_head * shape.value_dim;
  }

  __device__ void run() {
    for (int d = lane_; d < shape_.value_dim; d += 32) output_[d] = 0.0f;
    const SeenRanges seen = seen_ranges(sequence_, own_, own_);
    for (int p = seen.prefix_begin; p < seen.prefix_end; p += 32) attend(p, seen.prefix_end);
    for (int p = seen.begin; p < seen.end; p += 32) attend(p, seen.end);
    if (sequence_.sinks != nullptr) {  // joins the denominator and nothing else
      const float sink = sequence_.sinks[head_] * kLog2E;
      const float factor = raise(sink);
      for (int d = lane_; d < shape_.value_dim; d += 32) output_[d] *= factor;
      sum_ += power_of_two(sink - largest_);
    }
    for (int d = lane_; d < shape_.value_dim; d += 32) output_[d] /= sum_;
  }

 private:
  // The key or the value of a position; heads are `stride` elements apart.
  __device__ const Element* cached(int64_t pages, int position, int stride) const {
    const std::byte* page = pages_[pages + position / shape_.page_tokens];
    const int64_t kv_head = head_ / shape_.group();
    return reinterpret_cast<const Element*>(page) +
           (position % shape_.page_tokens * int64_t{shape_.kv_heads} + kv_head) * stride;
  }

  __device__ float score(int position) const {
    const Element* key = cached(sequence_.key_pages, position, shape_.head_dim);
    float sum = 0.0f;
    for (int d = 0; d < shape_.head_dim; ++d) {
      const float query = shape_.rounded_queries ? rounded(query_[d]) : query_[d];
      sum = fmaf(query, to_float(key[d]), sum);
    }
    return sum * (sequence_.scale * kLog2E) + bias(position);
  }

  // The bias of the score of a position by its distance, in units of log2.
  __device__ float bias(int position) const {
    if (sequence_.bias == nullptr) return 0.0f;
    const int reach = sequence_.bias_reach;
    const int distance = min(max(position - own_, -reach), reach);
    return sequence_.bias[int64_t{reach + distance} * shape_.query_heads + head_] * kLog2E;
  }

  // Brings the sum to a larger measure; returns the factor for all that was added up so far.
  __device__ float raise(float score) {
    const float largest = fmaxf(largest_, score);
    const float factor = largest_ == largest ? 1.0f : power_of_two(largest_ - largest);
    largest_ = largest;
    sum_ *= factor;
    return factor;
  }

  // Positions first .. min(first + 32, end) - 1, all of them seen.
  __device__ void attend(int first, int end) {
    const int count = min(32, end - first);
    const float own_score = lane_ < count ? score(first + lane_) : -INFINITY;
    const float factor = raise(warp_max(own_score));
    const float share = power_of_two(own_score - largest_);
    sum_ += warp_sum(share);
    for (int begin = 0; begin < shape_.value_dim; begin += 32) {
      const int d = begin + lane_;
      float weighted = 0.0f;
      for (int i = 0; i < count; ++i) {
        const float its_share = __shfl_sync(0xFFFFFFFFu, share, i);
        if (d < shape_.value_dim) {
          const Element* value = cached(sequence_.value_pages, first + i, shape_.value_stride());
          weighted = fmaf(its_share, to_float(value[d]), weighted);
        }
      }
      if (d < shape_.value_dim) output_[d] = output_[d] * factor + weighted;
    }
  }

  const AttentionShape& shape_;
  const std::byte* const* pages_;
  AttentionSequence sequence_;
  int head_;
  int lane_;
  int own_;  // position of the token
  const float* query_;
  float* output_;
  float largest_ = -INFINITY;  // score, in units of log2
  float sum_ = 0.0f;           // sum of 2^(score - largest)
};

template <typename Element>
__global__ void plain_kernel(const AttentionShape shape, const PlainLists lists) {
  const int64_t query = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (query < lists.count) PlainQuery<Element>(shape, lists, query).run();
}

AttentionShape shape_of(const AttentionArguments& arguments) {
  const KvPages& cache = arguments.cache;
  const bool bf16 = cache.type == DType::BF16;
  return {.query_heads = static_cast<int>(arguments.query_heads),
          .kv_heads = static_cast<int>(arguments.kv_heads),
          .head_dim = static_cast<int>(arguments.head_dim()),
          .value_dim = static_cast<int>(arguments.value_dim()),
          .page_tokens = static_cast<int>(cache.page_tokens),
          .values_in_keys = cache.values.empty(),
          .bf16_cache = bf16,
          .rounded_queries = bf16 && arguments.precision == Precision::bf16};
}

int or_everything(int64_t window) {
  return static_cast<int>(window == 0 ? kEverything : std::min<int64_t>(window, kEverything));
}

void append(const AttentionArguments& arguments, AttentionBatch& batch) {
  const KvPages& cache = arguments.cache;
  const int64_t end = arguments.seen_end > 0 ? arguments.seen_end
                                             : arguments.first_position + arguments.queries.count;
  const auto pages = static_cast<ptrdiff_t>((end + cache.page_tokens - 1) / cache.page_tokens);
  const auto key_pages = static_cast<int64_t>(batch.pages.size());
  batch.pages.insert(batch.pages.end(), cache.keys.begin(), cache.keys.begin() + pages);
  if (!cache.values.empty()) {
    batch.pages.insert(batch.pages.end(), cache.values.begin(), cache.values.begin() + pages);
  }
  batch.sequences.push_back(
      {.queries = arguments.queries.data,
       .output = arguments.output.data,
       .sinks = arguments.sinks.empty() ? nullptr : arguments.sinks.data(),
       .key_pages = key_pages,
       .value_pages = cache.values.empty() ? key_pages : key_pages + pages,
       .tokens = static_cast<int>(arguments.queries.count),
       .first_position = static_cast<int>(arguments.first_position),
       .window = or_everything(arguments.window),
       .chunk = or_everything(arguments.chunk),
       .kept_prefix = static_cast<int>(cache.kept_window == 0 ? 0 : cache.kept_prefix),
       .kept_window = or_everything(cache.kept_window),
       .seen_begin = static_cast<int>(arguments.seen_begin),
       .seen_end = static_cast<int>(arguments.seen_end),
       .bias = arguments.position_bias.empty() ? nullptr : arguments.position_bias.data(),
       .bias_reach = static_cast<int>(arguments.bias_reach),
       .scale = arguments.scale});
}

// A single token that sees all positions before an end, whatever its own, sees them as the last of
// them would: every way computes that. Where distances count, its own position matters.
AttentionArguments as_causal(AttentionArguments arguments) {
  const bool distances_count = !arguments.position_bias.empty() || arguments.window > 0 ||
                               arguments.chunk > 0 || arguments.cache.kept_window > 0;
  if (arguments.seen_end == 0 || arguments.queries.count != 1 || distances_count) return arguments;
  arguments.first_position = arguments.seen_end - 1;
  arguments.seen_end = 0;
  return arguments;
}

// The bits that any of the addresses has: there are thousands, and this takes several at a time.
uintptr_t all_bits(std::span<std::byte* const> addresses) {
  uintptr_t bits = 0;
  for (const std::byte* address : addresses) bits |= reinterpret_cast<uintptr_t>(address);
  return bits;
}

using Way = void (*)(const Context&, const AttentionBatch&);

Way way_of(const Context& with, const AttentionArguments& arguments) {
  const AttentionShape shape = shape_of(arguments);
  const auto aligned = [](uintptr_t address) { return address % 16 == 0; };
  const KvPages& cache = arguments.cache;
  if (arguments.seen_end > 0 || !arguments.position_bias.empty()) return plain_attention;
  if (!decode_takes(shape) || !aligned(all_bits(cache.keys) | all_bits(cache.values))) {
    return plain_attention;
  }
  const bool rows_aligned = aligned(reinterpret_cast<uintptr_t>(arguments.queries.data) |
                                    reinterpret_cast<uintptr_t>(arguments.output.data));
  return prefill_takes(with, shape) && arguments.queries.count > kFewTokens &&
                 arguments.scale > 0 && rows_aligned
             ? prefill_attention
             : decode_attention;
}

}  // namespace

void plain_attention(const Context& with, const AttentionBatch& batch) {
  std::vector<PlainWork> work;
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    for (int token = 0; token < batch.sequences[s].tokens; ++token) {
      work.push_back({static_cast<int>(s), token});
    }
  }
  const UploadedBatch<PlainWork> uploaded(with, batch, std::span<const PlainWork>(work));
  const int64_t queries = static_cast<int64_t>(work.size()) * batch.shape.query_heads;
  const PlainLists lists = {uploaded.sequences(), uploaded.pages(), uploaded.work(), queries};
  const auto blocks = static_cast<unsigned>((queries + kWarps - 1) / kWarps);
  const auto kernel = batch.shape.bf16_cache ? plain_kernel<__nv_bfloat16> : plain_kernel<float>;
  kernel<<<blocks, kWarps * 32, 0, with.stream>>>(batch.shape, lists);
  check_launch("attention");
}

void CudaProcessor::attention(std::span<const AttentionArguments> sequences) const {
  const Context& with = context();
  struct Part {
    Way way;
    AttentionBatch batch;
  };
  std::vector<Part> parts;  // few: the sequences of a layer have one shape
  for (const AttentionArguments& given : sequences) {
    if (given.queries.count == 0) continue;
    const AttentionArguments arguments = as_causal(given);
    const Way way = way_of(with, arguments);
    const AttentionShape shape = shape_of(arguments);
    auto part = std::find_if(parts.begin(), parts.end(), [&](const Part& one) {
      return one.way == way && one.batch.shape == shape;
    });
    if (part == parts.end()) part = parts.insert(part, {way, {shape, {}, {}}});
    append(arguments, part->batch);
  }
  for (const Part& part : parts) part.way(with, part.batch);
}

}  // namespace klotski::cuda
