#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/cublas_cuda.h"
#include "kernels/cuda/expand_cuda.h"
#include "kernels/cuda/expert_rows_cuda.h"
#include "kernels/cuda/few_rows_cuda.h"
#include "kernels/cuda/formats_cuda.h"
#include "kernels/cuda/piece_rows.h"
#include "kernels/cuda/products_cuda.h"

namespace klotski::cuda {

namespace {

// Rows that are computed together, of one expert or of several: the scratch stays small, and the
// weights are read seldom enough. Float32 rows take more scratch.
constexpr int64_t kBatchRows = 1024;
constexpr int64_t kPlainRows = 512;

using Pieces = std::vector<ExpertPiece>;

// The type in which weights are multiplied.
DType multiplied_type(const TensorView& weight) {
  return is_multiplied_as_bf16(weight.dtype) ? DType::BF16 : weight.dtype;
}

// Whether all three products have inputs of one part in the 16-bit type of all weights.
bool in_16_bits(const ExpertProduct& product, Precision precision) {
  const DType type = multiplied_type(product.gate);
  return precision == Precision::bf16 && (type == DType::BF16 || type == DType::F16) &&
         (!product.gated() || multiplied_type(product.up) == type) &&
         multiplied_type(product.down) == type;
}

bool has_biases(const ExpertProduct& product) { return product.gate_bias.data != nullptr; }

bool alike(const ExpertProduct& a, const ExpertProduct& b) {
  return multiplied_type(a.gate) == multiplied_type(b.gate) && a.gate.rows() == b.gate.rows() &&
         a.in.width == b.in.width && a.out.width == b.out.width && a.activation == b.activation &&
         a.swiglu == b.swiglu && a.gated() == b.gated() && has_biases(a) == has_biases(b) &&
         a.gate_bias.dtype == b.gate_bias.dtype;
}

// A part of an expert may lack the bias of down, and a batch has the biases of one type: others are
// computed through float32.
bool biases_alike(const ExpertProduct& product) {
  const auto like_gate = [&](const TensorView& bias) {
    return (bias.data != nullptr) == has_biases(product) &&
           (!bias.data || bias.dtype == product.gate_bias.dtype);
  };
  return (!product.gated() || like_gate(product.up_bias)) && like_gate(product.down_bias);
}

// One batch of 16-bit rows: products of few rows of all pieces launched together, the others piece
// by piece, the steps between products for all pieces at once.
template <typename Stored>
class Batch {
 public:
  Batch(const Context& with, const Pieces& pieces, cudaDataType type)
      : with_(with),
        pieces_(pieces),
        type_(type),
        first_(*pieces.front().product),
        width_(first_.gate.rows()),
        rows_(with, pieces),
        in_(with, bytes(first_.in.width, sizeof(Stored))),
        gate_(with, bytes(width_, sizeof(float))),
        up_(with, first_.gated() ? bytes(width_, sizeof(float)) : 0),
        gated_(with, bytes(width_, sizeof(Stored))),
        out_(with, rows_.any_scattered() ? bytes(first_.out.width, sizeof(float)) : 0) {}

  void run() const {
    rows_.template fetch<Stored>(in_.as<Stored>());
    Products widening;
    int64_t row = 0;
    for (const ExpertPiece& piece : pieces_) {
      const Stored* in = in_.as<Stored>() + row * first_.in.width;
      widening.add(*this, piece, piece.product->gate, in, gate_.as<float>() + row * width_);
      if (first_.gated()) {
        widening.add(*this, piece, piece.product->up, in, up_.as<float>() + row * width_);
      }
      row += piece.computed;
    }
    multiply(widening);
    rows_.add_biases(gate_.as<float>(), ExpertBias::gate);
    if (first_.gated()) rows_.add_biases(up_.as<float>(), ExpertBias::up);
    activate(with_, gated_.as<Stored>(), gate_.as<float>(),
             first_.gated() ? up_.as<float>() : nullptr, row * width_, first_);
    Products narrowing;
    row = 0;
    for (const ExpertPiece& piece : pieces_) {
      narrowing.add(*this, piece, piece.product->down, gated_.as<Stored>() + row * width_,
                    output_of(piece, row));
      row += piece.computed;
    }
    multiply(narrowing);
    row = 0;
    for (const ExpertPiece& piece : pieces_) {
      if (!piece.scattered() && has_biases(first_)) {
        add_bias(with_, {output_of(piece, row), piece.count, first_.out.width},
                 piece.product->down_bias);
      }
      row += piece.computed;
    }
    if (!rows_.any_scattered()) return;
    rows_.add_biases(out_.as<float>(), ExpertBias::down);
    rows_.scatter(out_.as<float>());
  }

 private:
  // Products that do not depend on each other.
  struct Products {
    void add(const Batch& of, const ExpertPiece& piece, const TensorView& weight, const Stored* in,
             float* out) {
      const bool is_few = piece.count <= of.most_few_rows(weight);
      (is_few ? few : many).push_back({out, in, is_few ? piece.count : piece.computed, weight});
    }

    std::vector<RowsProduct<Stored>> few;
    std::vector<RowsProduct<Stored>> many;
  };

  float* output_of(const ExpertPiece& piece, int64_t row) const {
    return piece.scattered() ? out_.as<float>() + row * first_.out.width : piece.straight_out();
  }

  uint64_t bytes(int64_t width, size_t element) const {
    return static_cast<uint64_t>(rows_.rows() * width) * element;
  }

  int64_t most_few_rows(const TensorView& weight) const {
    const FormatKernel* format = format_kernel(weight.dtype);
    return format ? format->most_few_rows(with_, weight) : most_few_plain_rows(weight);
  }

  void multiply(Products& products) const {
    std::vector<RowsProduct<Stored>>& few = products.few;
    const auto dtype = [](const RowsProduct<Stored>& one) { return one.weight.dtype; };
    std::stable_sort(few.begin(), few.end(),
                     [&](const auto& a, const auto& b) { return dtype(a) < dtype(b); });
    for (auto begin = few.begin(); begin != few.end();) {
      const auto end = std::find_if(
          begin, few.end(), [&](const auto& one) { return dtype(one) != dtype(*begin); });
      multiply_few(std::span<const RowsProduct<Stored>>(begin, end));
      begin = end;
    }
    for (const RowsProduct<Stored>& product : products.many) multiply_many(product);
  }

  // Products with weights of one type.
  void multiply_few(std::span<const RowsProduct<Stored>> products) const {
    if constexpr (std::is_same_v<Stored, __nv_bfloat16>) {
      const FormatKernel* format = format_kernel(products.front().weight.dtype);
      if (format) return format->few_rows(with_, products);
    }
    few_plain_rows<Stored>(with_, products, false);
  }

  void multiply_many(const RowsProduct<Stored>& product) const {
    for_each_slab(with_, product.weight, false, [&](const TensorView& slab, int64_t first) {
      with_.cublas->multiply({.out = product.out + first,
                              .in = product.in,
                              .weight = slab.data,
                              .type = type_,
                              .rows = product.rows,
                              .out_width = slab.rows(),
                              .in_width = slab.columns(),
                              .out_stride = product.weight.rows()});
    });
  }

  const Context& with_;
  const Pieces& pieces_;
  cudaDataType type_;
  const ExpertProduct& first_;
  int64_t width_;
  ExpertBatchRows rows_;
  Scratch in_;
  Scratch gate_;
  Scratch up_;
  Scratch gated_;
  Scratch out_;
};

void run_batch(const Context& with, Pieces& pieces) {
  if (pieces.empty()) return;
  if (is_multiplied_as_bf16(pieces.front().product->gate.dtype)) {
    Batch<__nv_bfloat16>(with, pieces, CUDA_R_16BF).run();
  } else {
    Batch<__half>(with, pieces, CUDA_R_16F).run();
  }
  pieces.clear();
}

bool any_packed(const ExpertProduct& product) {
  return is_packed(product.gate.dtype) || is_packed(product.up.dtype) ||
         is_packed(product.down.dtype);
}

uint64_t expanded_bytes(const TensorView& weight) {
  if (!is_packed(weight.dtype)) return 0;
  return static_cast<uint64_t>(weight.rows() * bytes_per_row(DType::BF16, weight.columns()));
}

// An expert whose weights are expanded once for all of its rows.
class ExpandedExpert {
 public:
  ExpandedExpert(const Context& with, const ExpertProduct& product)
      : product_(product),
        gate_(with, expanded_bytes(product.gate)),
        up_(with, expanded_bytes(product.up)),
        down_(with, expanded_bytes(product.down)) {
    expand_into(with, gate_, product_.gate);
    expand_into(with, up_, product_.up);
    expand_into(with, down_, product_.down);
  }
  const ExpertProduct& product() const { return product_; }

 private:
  static void expand_into(const Context& with, const Scratch& scratch, TensorView& weight) {
    const FormatKernel* format = format_kernel(weight.dtype);
    if (!format) return;
    format->expand(with, scratch.as<__nv_bfloat16>(), weight);
    weight = {scratch.as<const std::byte>(), DType::BF16, weight.shape};
  }

  ExpertProduct product_;
  Scratch gate_;
  Scratch up_;
  Scratch down_;
};

// Runs a piece of any types and precision, through float32.
void run_plain(const CudaProcessor& processor, const ExpertPiece& piece, Precision precision) {
  const Context& with = processor.context();
  const ExpertProduct& product = *piece.product;
  const ExpertBatchRows rows(with, std::span(&piece, 1));
  const int64_t width = product.gate.rows();
  const int64_t in_count = piece.count * product.in.width;
  const int64_t out_count = piece.scattered() ? piece.count * product.out.width : 0;
  const Scratch in(with, static_cast<uint64_t>(in_count) * sizeof(float));
  const Scratch gate(with, static_cast<uint64_t>(piece.count * width) * sizeof(float));
  const int64_t up_count = product.gated() ? piece.count * width : 0;
  const Scratch up(with, static_cast<uint64_t>(up_count) * sizeof(float));
  const Scratch out(with, static_cast<uint64_t>(out_count) * sizeof(float));
  const Rows in_rows = {in.as<float>(), piece.count, product.in.width};
  const Rows gate_rows = {gate.as<float>(), piece.count, width};
  const Rows up_rows = {up.as<float>(), piece.count, width};
  float* to = piece.scattered() ? out.as<float>() : piece.straight_out();

  rows.fetch(in_rows.data);
  processor.matmul(gate_rows, in_rows, product.gate, product.gate_bias, precision);
  if (product.gated()) {
    processor.matmul(up_rows, in_rows, product.up, product.up_bias, precision);
  }
  activate(with, gate_rows.data, gate_rows.data, product.gated() ? up_rows.data : nullptr,
           piece.count * width, product);
  processor.matmul({to, piece.count, product.out.width}, gate_rows, product.down, product.down_bias,
                   precision);
  if (piece.scattered()) rows.scatter(to);
}

}  // namespace

void CudaProcessor::experts(std::span<const ExpertProduct> products, Precision precision) const {
  Pieces batch;
  int64_t batch_rows = 0;
  const auto flush = [&] {
    run_batch(context(), batch);
    batch_rows = 0;
  };
  for (const ExpertProduct& given : products) {
    for (const TensorView* weight : {&given.gate, &given.up, &given.down}) check_no_gaps(*weight);
    const bool plain = !in_16_bits(given, precision) || !biases_alike(given);
    // Each of several pieces would expand the weights anew.
    std::optional<ExpandedExpert> expanded;
    if (!plain && given.rows() > kBatchRows && any_packed(given)) {
      flush();
      expanded.emplace(context(), given);
    }
    const ExpertProduct& product = expanded ? expanded->product() : given;
    const int64_t most = plain ? kPlainRows : kBatchRows;
    for (int64_t first = 0; first < product.rows(); first += most) {
      ExpertPiece piece(product, first, std::min(most, product.rows() - first));
      if (plain) {
        run_plain(*this, piece, precision);
        continue;
      }
      // Only pieces with a list of output rows are padded: without a list there is no room behind
      // the results, and such pieces have as many rows in every layer.
      if (piece.scattered()) piece.computed = padded_rows(piece.count);
      if (batch_rows + piece.computed > kBatchRows ||
          (!batch.empty() && !alike(product, *batch.front().product))) {
        flush();
      }
      batch.push_back(piece);
      batch_rows += piece.computed;
    }
    if (expanded) flush();
  }
  flush();
}

uint64_t CudaProcessor::expansion_bytes(const MostWork& most, Precision precision,
                                        std::span<const DType> formats) const {
  bool expanded = false;
  for (const DType format : formats) expanded |= format_kernel(format) != nullptr;
  if (!expanded || most.rows <= kBatchRows || precision != Precision::bf16) return 0;
  constexpr int64_t kMatrices = 3;
  constexpr uint64_t kRounding = kMatrices * 256;
  const int64_t row = bytes_per_row(DType::BF16, most.in_width);
  return static_cast<uint64_t>(kMatrices * most.expert_width * row) + kRounding;
}

uint64_t experts_scratch_bytes(const MostWork& most) {
  constexpr uint64_t kRounding = 16 * 256;  // rounding of each piece of memory
  const int64_t batch = std::min(2 * most.rows * most.choices, kBatchRows);  // padded
  const int64_t in_16_bits = batch * (6 * most.in_width + 10 * most.expert_width) + kSlabBytes;
  const int64_t plain = std::min(most.rows, kPlainRows);
  const uint64_t in_floats =
      static_cast<uint64_t>(plain * 8 * (most.in_width + most.expert_width)) +
      matmul_scratch_bytes(plain, std::max(most.in_width, most.expert_width));
  const uint64_t segments = static_cast<uint64_t>(batch) * sizeof(ExpertSegment);
  return std::max(static_cast<uint64_t>(in_16_bits), in_floats) + segments + kRounding;
}

}  // namespace klotski::cuda
