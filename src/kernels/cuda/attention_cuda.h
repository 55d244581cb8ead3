#pragma once

// Shapes, sequences and lists of the kernels of attention. A call is cut into batches of sequences
// of one shape; each batch is computed by one of three ways:
//   prefill  tensor cores; many queries, bf16 keys and rounded queries
//   decode   float32 arithmetic, split over the positions; few queries, and all other usual shapes;
//            wide blocks of it where values are a part of the keys
//   plain    any shape

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/context_cuda.h"

namespace klotski::cuda {

struct AttentionShape {
  int query_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;   // numbers of a query or key head
  int value_dim = 0;  // numbers of a value or output head; differs only in wide and plain ways
  int page_tokens = 0;
  bool values_in_keys = false;  // values are the first value_dim numbers of keys
  bool bf16_cache = false;
  bool rounded_queries = false;  // queries are rounded to bf16

  bool operator==(const AttentionShape&) const = default;
  __host__ __device__ int group() const { return query_heads / kv_heads; }
  // Numbers from the value of a head to the value of the next.
  __host__ __device__ int value_stride() const { return values_in_keys ? head_dim : value_dim; }
  __host__ __device__ int64_t query_width() const { return int64_t{query_heads} * head_dim; }
  __host__ __device__ int64_t kv_width() const { return int64_t{kv_heads} * head_dim; }
};

// Longer than any sequence, and twice of it still fits an int.
inline constexpr int kEverything = 1 << 29;

// One sequence as kernels see it. Windows are kEverything where there is none.
struct AttentionSequence {
  const float* queries;  // [tokens][query_heads * head_dim]
  float* output;         // [tokens][query_heads * value_dim]
  const float* sinks;    // [query_heads] or null
  int64_t key_pages;     // index of its first page address in the batch's table
  int64_t value_pages;
  int tokens;
  int first_position;
  int window;
  int chunk;
  int kept_prefix;
  int kept_window;
  int seen_begin;  // positions before it are not seen
  // Positions from it on are not seen, all others are. 0: a token's own is the last that it sees;
  // the plain way alone knows others.
  int seen_end;
  const float* bias;  // [2 * bias_reach + 1][query_heads] or null, for the plain way
  int bias_reach;
  float scale;

  // The first position that the token at position `own` sees.
  __host__ __device__ int first_seen(int own) const {
    const int in_window = own - window + 1 > 0 ? own - window + 1 : 0;
    const int in_chunk = own - own % chunk;
    const int first = in_window > in_chunk ? in_window : in_chunk;
    return first > seen_begin ? first : seen_begin;
  }
  // The position after the last one that the token at position `own` sees.
  __host__ __device__ int end_of_seen(int own) const { return seen_end > 0 ? seen_end : own + 1; }
  // Whether the token at position `own` sees `position`, as visible_positions() says.
  __host__ __device__ bool sees(int own, int position) const {
    return position < end_of_seen(own) && position >= first_seen(own) &&
           (position > own - kept_window || position < kept_prefix);
  }
};

// Positions that at least one of the tokens at first .. last sees: two ranges, the first one empty
// where nothing lies between them.
struct SeenRanges {
  int prefix_begin, prefix_end, begin, end;

  __host__ __device__ bool has(int position) const {
    return (position >= prefix_begin && position < prefix_end) ||
           (position >= begin && position < end);
  }
};

__host__ __device__ inline SeenRanges seen_ranges(const AttentionSequence& sequence, int first,
                                                  int last) {
  const int furthest = sequence.first_seen(first);
  int begin = first - sequence.kept_window + 1;
  if (begin < furthest) begin = furthest;
  if (sequence.kept_prefix >= begin) begin = furthest;  // no gap
  const int prefix_end = sequence.kept_prefix < begin ? sequence.kept_prefix : begin;
  return {furthest, prefix_end > furthest ? prefix_end : furthest, begin,
          sequence.end_of_seen(last)};
}

struct AttentionBatch {
  AttentionShape shape;
  std::vector<AttentionSequence> sequences;
  std::vector<const std::byte*> pages;  // keys' and values' pages of all sequences
};

// Several lists that go to the device in one copy.
class PackedLists {
 public:
  // Room for `bytes` in up to kMostLists lists.
  explicit PackedLists(uint64_t bytes) { bytes_.reserve(bytes + kMostLists * kAlignment); }

  // Returns where the list begins, in bytes.
  template <typename T>
  uint64_t add(std::span<const T> list) {
    static_assert(alignof(T) <= kAlignment);
    const uint64_t begin = (bytes_.size() + kAlignment - 1) / kAlignment * kAlignment;
    bytes_.resize(begin);
    const auto bytes = std::as_bytes(list);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return begin;
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  static constexpr uint64_t kAlignment = 16;
  static constexpr uint64_t kMostLists = 4;
  std::vector<std::byte> bytes_;
};

// The lists of a batch on the device, with a list of the work of a kernel's blocks and, where
// another kernel follows, a list of its work.
template <typename Work, typename After = Work>
class UploadedBatch {
 public:
  UploadedBatch(const Context& with, const AttentionBatch& batch, std::span<const Work> work,
                std::span<const After> after = {})
      : uploaded_(with, packed(batch, work, after).bytes()) {}

  const AttentionSequence* sequences() const { return at<AttentionSequence>(sequences_); }
  const std::byte* const* pages() const { return at<const std::byte*>(pages_); }
  const Work* work() const { return at<Work>(work_); }
  const After* after() const { return at<After>(after_); }

 private:
  PackedLists packed(const AttentionBatch& batch, std::span<const Work> work,
                     std::span<const After> after) {
    const std::span<const AttentionSequence> sequences(batch.sequences);
    const std::span<const std::byte* const> pages(batch.pages);
    PackedLists lists(sequences.size_bytes() + pages.size_bytes() + work.size_bytes() +
                      after.size_bytes());
    sequences_ = lists.add(sequences);
    pages_ = lists.add(pages);
    work_ = lists.add(work);
    after_ = lists.add(after);
    return lists;
  }
  template <typename T>
  const T* at(uint64_t offset) const {
    return reinterpret_cast<const T*>(uploaded_.data() + offset);
  }

  uint64_t sequences_ = 0;
  uint64_t pages_ = 0;
  uint64_t work_ = 0;
  uint64_t after_ = 0;
  Uploaded<std::byte> uploaded_;
};

inline constexpr float kLog2E = 1.4426950408889634f;

// 2^x within two units of the last place; 0 for minus infinity.
__device__ inline float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ inline float rounded(float value) {
  return __bfloat162float(__float2bfloat16_rn(value));
}

// Whether prefill_attention computes this on the device of the context.
bool prefill_takes(const Context& with, const AttentionShape& shape);
bool decode_takes(const AttentionShape& shape);

// Scales are above 0; pages are aligned to 16 bytes.
void prefill_attention(const Context& with, const AttentionBatch& batch);
// Pages are aligned to 16 bytes.
void decode_attention(const Context& with, const AttentionBatch& batch);
void plain_attention(const Context& with, const AttentionBatch& batch);

}  // namespace klotski::cuda
