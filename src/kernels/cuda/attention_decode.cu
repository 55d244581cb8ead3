// Attention of single tokens over many positions, bound by the reading of keys and values. The
// positions a token sees are split at multiples of a size that depends on nothing but the token;
// each split gives a partial result, and a second kernel merges these in the order of positions. A
// block reads the keys and values of one key-value head once for up to kHeads of its query heads.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/attention_cuda.h"
#include "kernels/cuda/attention_few_cuda.h"
#include "kernels/cuda/attention_split_cuda.h"
#include "kernels/cuda/attention_wide_cuda.h"

namespace klotski::cuda {

namespace {

using namespace decode;

constexpr int kMostSplits = 64;  // splits of a token; a few more where a gap cuts them
constexpr uint64_t kMostPartialBytes = uint64_t{32} << 20;

// The splits of one token.
struct SplitToken {
  int sequence;
  int token;
  int first_split;
  int splits;
};

template <typename Element, int kLanes, int kHeads>
__global__ void __launch_bounds__(kThreads)
    split_kernel(const AttentionShape shape, const DecodeLists lists, const Partials partials) {
  static_assert(kThreads == kChunk);
  using Block = SplitBlock<Element, kLanes, kHeads>;
  __shared__ typename Block::Shared shared;
  Block(shape, lists, shared).run(partials);
}

template <typename Element, int kVectors>
__global__ void __launch_bounds__(kThreads)
    wide_kernel(const AttentionShape shape, const DecodeLists lists, const Partials partials) {
  using Block = WideBlock<Element, kVectors>;
  __shared__ typename Block::Shared shared;
  Block(shape, lists, shared).run(partials);
}

template <typename Layout>
__global__ void __launch_bounds__(kThreads, Layout::kBlocks)
    few_kernel(const AttentionShape shape, const DecodeLists lists, const Partials partials) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(16) std::byte shared[];
  FewBlock<Layout>(shape, lists, *reinterpret_cast<FewShared<Layout>*>(shared)).run(partials);
#else
  __trap();  // prefill_takes has said no
#endif
}

// Block (x, y): query head y of token x. Partials begin with the first token's.
__global__ void merge_kernel(const AttentionShape shape, const AttentionSequence* sequences,
                             const SplitToken* tokens, const Partials partials) {
  const SplitToken token = tokens[blockIdx.x];
  const int first_split = token.first_split - tokens[0].first_split;
  const AttentionSequence& sequence = sequences[token.sequence];
  const int head = static_cast<int>(blockIdx.y);
  const int64_t first = int64_t{first_split} * shape.query_heads + head;
  const Statistics* statistics = partials.statistics + first;
  const float sink = sequence.sinks == nullptr ? -INFINITY : sequence.sinks[head] * kLog2E;
  float largest = sink;
  for (int s = 0; s < token.splits; ++s) {
    largest = fmaxf(largest, statistics[int64_t{s} * shape.query_heads].largest);
  }
  float* output =
      sequence.output + (int64_t{token.token} * shape.query_heads + head) * shape.value_dim;
  for (int d = static_cast<int>(threadIdx.x); d < shape.value_dim; d += kThreads) {
    float sum = power_of_two(sink - largest);
    float weighted = 0.0f;
    for (int s = 0; s < token.splits; ++s) {
      const int64_t partial = int64_t{s} * shape.query_heads;
      const float factor = power_of_two(statistics[partial].largest - largest);
      sum += factor * statistics[partial].sum;
      weighted += factor * partials.weighted[(first + partial) * shape.value_dim + d];
    }
    output[d] = weighted / sum;
  }
}

template <typename Element, int kLanes>
void launch_splits(const Context& with, const AttentionShape& shape, const DecodeLists& lists,
                   const Partials& partials, size_t splits) {
  const auto launch = [&](auto* kernel, int heads) {
    const int parts = (shape.group() + heads - 1) / heads;
    const auto blocks = static_cast<unsigned>(splits * static_cast<size_t>(shape.kv_heads * parts));
    kernel<<<blocks, kThreads, 0, with.stream>>>(shape, lists, partials);
    check_launch("attention of single tokens");
  };
  if (shape.group() > 4) return launch(split_kernel<Element, kLanes, 8>, 8);
  if (shape.group() > 2) return launch(split_kernel<Element, kLanes, 4>, 4);
  if (shape.group() > 1) return launch(split_kernel<Element, kLanes, 2>, 2);
  launch(split_kernel<Element, kLanes, 1>, 1);
}

template <typename Element>
void launch_splits(const Context& with, const AttentionShape& shape, const DecodeLists& lists,
                   const Partials& partials, size_t splits) {
  if (shape.head_dim > 128) return launch_splits<Element, 32>(with, shape, lists, partials, splits);
  if (shape.head_dim > 64) return launch_splits<Element, 16>(with, shape, lists, partials, splits);
  launch_splits<Element, 8>(with, shape, lists, partials, splits);
}

template <typename Element>
void launch_wide(const Context& with, const AttentionShape& shape, const DecodeLists& lists,
                 const Partials& partials, size_t splits) {
  constexpr int kHeads = WideBlock<Element, 1>::kHeads;
  const int parts = (shape.group() + kHeads - 1) / kHeads;
  const auto blocks = static_cast<unsigned>(splits * static_cast<size_t>(shape.kv_heads * parts));
  const auto kernel =
      shape.head_dim <= 32 * kEight ? wide_kernel<Element, 1> : wide_kernel<Element, kMostVectors>;
  kernel<<<blocks, kThreads, 0, with.stream>>>(shape, lists, partials);
  check_launch("attention of wide keys");
}

template <int dim>
void launch_few(const Context& with, const AttentionShape& shape, const DecodeLists& lists,
                const Partials& partials, size_t splits) {
  constexpr int kSharedBytes = sizeof(FewShared<FewLayout<dim>>);
  const auto kernel = few_kernel<FewLayout<dim>>;
  check_cuda(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
      "cudaFuncSetAttribute");
  const int parts = (shape.group() + kMatrixRows - 1) / kMatrixRows;
  const auto blocks = static_cast<unsigned>(splits * static_cast<size_t>(shape.kv_heads * parts));
  kernel<<<blocks, kThreads, kSharedBytes, with.stream>>>(shape, lists, partials);
  check_launch("attention of single tokens on tensor cores");
}

void launch_splits(const Context& with, const AttentionShape& shape, const DecodeLists& lists,
                   const Partials& partials, size_t splits) {
  if (shape.values_in_keys) {
    return shape.bf16_cache ? launch_wide<__nv_bfloat16>(with, shape, lists, partials, splits)
                            : launch_wide<float>(with, shape, lists, partials, splits);
  }
  if (prefill_takes(with, shape)) {
    if (shape.head_dim == 64) return launch_few<64>(with, shape, lists, partials, splits);
    if (shape.head_dim == 80) return launch_few<80>(with, shape, lists, partials, splits);
    if (shape.head_dim == 96) return launch_few<96>(with, shape, lists, partials, splits);
    if (shape.head_dim == 128) return launch_few<128>(with, shape, lists, partials, splits);
  }
  if (shape.bf16_cache) return launch_splits<__nv_bfloat16>(with, shape, lists, partials, splits);
  launch_splits<float>(with, shape, lists, partials, splits);
}

// [begin, end), cut at multiples of `size`. No split is empty.
void append_splits(Split split, int begin, int end, int size, std::vector<Split>& splits) {
  if (begin == end) return;
  for (int at = begin / size * size; at < end; at += size) {
    split.begin = std::max(at, begin);
    split.end = std::min(at + size, end);
    splits.push_back(split);
  }
}

struct SplitList {
  std::vector<Split> splits;
  std::vector<SplitToken> tokens;
};

// Appends a token's splits in the order of positions.
void append_token(const AttentionSequence& sequence, Split split, SplitList& list) {
  const int own = sequence.first_position + split.token;
  const SeenRanges seen = seen_ranges(sequence, own, own);
  const int positions = seen.prefix_end - seen.prefix_begin + seen.end - seen.begin;
  const int chunks = (positions + kChunk - 1) / kChunk;
  const int size = (chunks + kMostSplits - 1) / kMostSplits * kChunk;
  const auto first = static_cast<int>(list.splits.size());
  append_splits(split, seen.prefix_begin, seen.prefix_end, size, list.splits);
  append_splits(split, seen.begin, seen.end, size, list.splits);
  const int count = static_cast<int>(list.splits.size()) - first;
  list.tokens.push_back({split.sequence, split.token, first, count});
}

// How many tokens from `first` on have partial results that fit the memory for these; at least one.
size_t tokens_that_fit(const SplitList& list, size_t first, uint64_t split_bytes) {
  uint64_t bytes = 0;
  size_t count = 0;
  for (size_t i = first; i < list.tokens.size(); ++i, ++count) {
    bytes += static_cast<uint64_t>(list.tokens[i].splits) * split_bytes;
    if (count > 0 && bytes > kMostPartialBytes) break;
  }
  return count;
}

}  // namespace

bool decode_takes(const AttentionShape& shape) {
  if (shape.values_in_keys) {
    return shape.head_dim % kEight == 0 && shape.value_dim % kEight == 0 &&
           shape.head_dim <= kMostVectors * 32 * kEight;
  }
  return shape.value_dim == shape.head_dim && shape.head_dim % kEight == 0 &&
         shape.head_dim <= 32 * kEight;
}

void decode_attention(const Context& with, const AttentionBatch& batch) {
  SplitList list;
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    for (int token = 0; token < batch.sequences[s].tokens; ++token) {
      append_token(batch.sequences[s], {static_cast<int>(s), token, 0, 0}, list);
    }
  }
  const AttentionShape& shape = batch.shape;
  const UploadedBatch<Split, SplitToken> uploaded(with, batch, std::span<const Split>(list.splits),
                                                  std::span<const SplitToken>(list.tokens));
  const auto heads = static_cast<uint64_t>(shape.query_heads);
  const uint64_t head_bytes = static_cast<uint64_t>(shape.value_dim) * sizeof(float);
  for (size_t at = 0; at < list.tokens.size();) {
    const size_t count = tokens_that_fit(list, at, heads * (head_bytes + sizeof(Statistics)));
    const SplitToken& last = list.tokens[at + count - 1];
    const int first_split = list.tokens[at].first_split;
    const auto splits = static_cast<size_t>(last.first_split + last.splits - first_split);
    const Scratch statistics(with, splits * heads * sizeof(Statistics));
    const Scratch weighted(with, splits * heads * head_bytes);
    const Partials partials = {statistics.as<Statistics>(), weighted.as<float>()};
    const DecodeLists lists = {uploaded.sequences(), uploaded.pages(),
                               uploaded.work() + first_split};
    launch_splits(with, shape, lists, partials, splits);
    const dim3 grid(static_cast<unsigned>(count), static_cast<unsigned>(shape.query_heads));
    merge_kernel<<<grid, kThreads, 0, with.stream>>>(shape, uploaded.sequences(),
                                                     uploaded.after() + at, partials);
    check_launch("merging of attention");
    at += count;
  }
}

}  // namespace klotski::cuda
