#include <algorithm>
#include <vector>

#include "kernels/cuda/activation_cuda.h"
#include "kernels/cuda/expert_rows_cuda.h"
#include "kernels/cuda/vectors_cuda.h"

namespace klotski::cuda {

namespace {

struct SegmentList {
  const ExpertSegment* data;
  int count;
};

// The last segment that begins at this row of the batch or before it.
__device__ __forceinline__ const ExpertSegment& segment_of(SegmentList list, int64_t row) {
  int begin = 0;
  int end = list.count;
  while (end - begin > 1) {
    const int middle = (begin + end) / 2;
    (list.data[middle].begin <= row ? begin : end) = middle;
  }
  return list.data[begin];
}

// A block a row.
template <typename Stored>
__global__ void fetch_rows(Stored* packed, SegmentList segments, int64_t width, bool aligned) {
  const int64_t row = blockIdx.x;
  const ExpertSegment& segment = segment_of(segments, row);
  const int64_t place = min(row - segment.begin, segment.count - 1);
  const float* in = segment.in + (segment.in_rows ? segment.in_rows[place] : place) * width;
  if (!segment.scales) return copy_row(packed + row * width, in, width, aligned);
  const float factor = segment.scales[place];
  for (int64_t i = threadIdx.x * kVector; i < width; i += kThreads * kVector) {
    Floats values = load(in + i, width - i, aligned);
#pragma unroll
    for (int k = 0; k < kVector; ++k) values.values[k] *= factor;
    store(packed + row * width + i, values, width - i, aligned);
  }
}

// A block a row.
template <typename Bias>
__global__ void add_biases_to_rows(float* packed, SegmentList segments, ExpertBias of,
                                   int64_t width) {
  const int64_t row = blockIdx.x;
  const auto* bias =
      static_cast<const Bias*>(segment_of(segments, row).biases[static_cast<size_t>(of)]);
  for (int64_t i = threadIdx.x; i < width; i += kThreads) {
    packed[row * width + i] += to_float(bias[i]);
  }
}

__global__ void scatter_rows(const float* packed, SegmentList segments, int64_t width,
                             bool aligned) {
  const int64_t row = blockIdx.x;
  const ExpertSegment& segment = segment_of(segments, row);
  const int64_t place = row - segment.begin;
  if (!segment.out_rows || place >= segment.count) return;
  float* out = segment.out + int64_t{segment.out_rows[place]} * width;
  copy_row(out, packed + row * width, width, aligned);
}

template <Activation kActivation>
__device__ __forceinline__ float gated_number(float gate, float up, const ClampedSwiglu& rule) {
  if constexpr (kActivation == Activation::clamped_swiglu) {
    const float g = gate > rule.limit ? rule.limit : gate;
    const float u = up > rule.limit ? rule.limit : up < -rule.limit ? -rule.limit : up;
    return g / (1.0f + expf(-rule.slope * g)) * (u + 1.0f);
  } else {
    return activated<kActivation>(gate) * up;
  }
}

template <typename Stored, Activation kActivation>
__global__ void gate_rows(Stored* out, const float* gate, const float* up, int64_t count,
                          ClampedSwiglu rule) {
  for (int64_t i = global_thread() * kVector; i < count; i += all_threads() * kVector) {
    Floats gated = load(gate + i, count - i, true);
    if (up != nullptr) {
      const Floats factors = load(up + i, count - i, true);
#pragma unroll
      for (int k = 0; k < kVector; ++k) {
        gated.values[k] = gated_number<kActivation>(gated.values[k], factors.values[k], rule);
      }
    } else {
#pragma unroll
      for (int k = 0; k < kVector; ++k) {
        gated.values[k] = gated_number<kActivation>(gated.values[k], 1.0f, rule);
      }
    }
    store(out + i, gated, count - i, true);
  }
}

template <typename Stored>
auto gate_kernel(Activation activation) {
  switch (activation) {
    case Activation::silu:
      return gate_rows<Stored, Activation::silu>;
    case Activation::gelu:
      return gate_rows<Stored, Activation::gelu>;
    case Activation::gelu_tanh:
      return gate_rows<Stored, Activation::gelu_tanh>;
    case Activation::clamped_swiglu:
      return gate_rows<Stored, Activation::clamped_swiglu>;
    case Activation::relu:
      break;
  }
  return gate_rows<Stored, Activation::relu>;
}

std::vector<ExpertSegment> segments_of(std::span<const ExpertPiece> pieces) {
  std::vector<ExpertSegment> segments;
  int64_t begin = 0;
  for (const ExpertPiece& piece : pieces) {
    const ExpertProduct& product = *piece.product;
    const bool listed = !product.in_rows.empty();
    segments.push_back(
        {begin,
         piece.count,
         listed ? product.in.data : product.in.row(piece.first),
         listed ? product.in_rows.data() + piece.first : nullptr,
         product.out.data,
         piece.scattered() ? product.out_rows.data() + piece.first : nullptr,
         product.in_scales.empty() ? nullptr : product.in_scales.data() + piece.first,
         {product.gate_bias.data, product.up_bias.data, product.down_bias.data}});
    begin += piece.computed;
  }
  return segments;
}

}  // namespace

ExpertBatchRows::ExpertBatchRows(const Context& with, std::span<const ExpertPiece> pieces)
    : with_(with),
      in_width_(pieces.front().product->in.width),
      out_width_(pieces.front().product->out.width),
      expert_width_(pieces.front().product->gate.rows()),
      bias_type_(pieces.front().product->gate_bias.dtype),
      any_bias_(pieces.front().product->gate_bias.data != nullptr),
      in_aligned_(in_width_ % kVector == 0),
      out_aligned_(out_width_ % kVector == 0),
      segment_count_(static_cast<int>(pieces.size())),
      segments_(with, segments_of(pieces)) {
  for (const ExpertPiece& piece : pieces) {
    rows_ += piece.computed;
    in_aligned_ = in_aligned_ && is_aligned(piece.product->in.data);
    out_aligned_ = out_aligned_ && is_aligned(piece.product->out.data);
    any_scattered_ = any_scattered_ || piece.scattered();
  }
}

template <typename Stored>
void ExpertBatchRows::fetch(Stored* packed) const {
  fetch_rows<<<static_cast<unsigned>(rows_), kThreads, 0, with_.stream>>>(
      packed, {segments_.data(), segment_count_}, in_width_, in_aligned_);
  check_launch("fetch_rows");
}

void ExpertBatchRows::scatter(const float* packed) const {
  scatter_rows<<<static_cast<unsigned>(rows_), kThreads, 0, with_.stream>>>(
      packed, {segments_.data(), segment_count_}, out_width_, out_aligned_);
  check_launch("scatter_rows");
}

void ExpertBatchRows::add_biases(float* packed, ExpertBias of) const {
  if (!any_bias_) return;
  const int64_t width = of == ExpertBias::down ? out_width_ : expert_width_;
  with_stored_type(bias_type_, [&](auto type) {
    using Bias = decltype(type);
    add_biases_to_rows<Bias><<<static_cast<unsigned>(rows_), kThreads, 0, with_.stream>>>(
        packed, {segments_.data(), segment_count_}, of, width);
  });
  check_launch("add_biases_to_rows");
}

template <typename Stored>
void activate(const Context& with, Stored* out, const float* gate, const float* up, int64_t count,
              const ExpertProduct& product) {
  const auto kernel = gate_kernel<Stored>(product.activation);
  kernel<<<striding_blocks((count + kVector - 1) / kVector), kThreads, 0, with.stream>>>(
      out, gate, up, count, product.swiglu);
  check_launch("gate_rows");
}

template void ExpertBatchRows::fetch(float*) const;
template void ExpertBatchRows::fetch(__half*) const;
template void ExpertBatchRows::fetch(__nv_bfloat16*) const;
template void activate(const Context&, float*, const float*, const float*, int64_t,
                       const ExpertProduct&);
template void activate(const Context&, __half*, const float*, const float*, int64_t,
                       const ExpertProduct&);
template void activate(const Context&, __nv_bfloat16*, const float*, const float*, int64_t,
                       const ExpertProduct&);

}  // namespace klotski::cuda
