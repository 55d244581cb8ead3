#include <algorithm>

#include "kernels/cpu/multiply.h"

namespace klotski::cpu {

namespace {

// Tokens of one head that are computed together.
struct TokenBlock {
  const HeadProducts& products;
  int64_t head;
  std::vector<const float*> in;
  std::vector<float*> out;

  TokenBlock(const HeadProducts& of, int64_t head_number, int64_t first, int64_t count)
      : products(of), head(head_number) {
    for (int64_t token = first; token < first + count; ++token) {
      in.push_back(of.in_head(token, head));
      out.push_back(of.out_head(token, head));
    }
  }
};

void copy_kept(const TokenBlock& block) {
  const HeadProducts& products = block.products;
  for (size_t i = 0; i < block.in.size(); ++i) {
    std::copy_n(block.in[i] + products.inputs(), products.kept(),
                block.out[i] + products.outputs());
  }
}

// Every output is a sum over the weights of one row. Inputs that must keep more than a bf16 number
// are not rounded at all: these products are small.
void multiply_by_rows(const Machine& with, const TokenBlock& block) {
  const HeadProducts& products = block.products;
  const TensorView view = products.matrix(block.head);
  const Precision precision =
      products.precision == Precision::bf16 ? Precision::bf16 : Precision::f32;
  const WeightMatrix weight(view, rounds_inputs(with.kernels, precision));
  const Products& way = products_for(with.kernels, weight.type, precision);
  std::byte* blocks =
      scratch(ScratchUse::inputs, blocks_of(std::ssize(block.in)) * way.block_bytes(weight.width));
  pack_rows(way, blocks, block.in, weight.width, 0, weight.width);
  const bool stored = weight.format->reads_stored(way);
  const int64_t strip =
      stored ? kStripOutputs : most_expanded_outputs(weight.width, element_bytes(weight.type));
  for (int64_t first = 0; first < weight.outputs; first += strip) {
    const int64_t count = std::min(strip, weight.outputs - first);
    multiply(with, way, {block.out, first, first, count}, blocks, weight);
  }
}

// Every output is a sum over the weights of one column: rows of weights are added up, multiplied by
// the inputs as they are.
void multiply_by_columns(const Machine& with, const TokenBlock& block) {
  const HeadProducts& products = block.products;
  const TensorView view = products.matrix(block.head);
  const WeightMatrix weight(view, false);
  const int64_t bytes = element_bytes(weight.type);
  Mix mix{.out = block.out.data(),
          .shares = nullptr,
          .shares_stride = products.in.width,
          .values = nullptr,
          .value_stride = weight.row_bytes / bytes,
          .type = weight.type,
          .rows = std::ssize(block.out),
          .positions = 0,
          .width = weight.width};
  for (float* out : block.out) std::fill_n(out, weight.width, 0.0f);
  if (weight.format->plain) {
    mix.shares = block.in[0];
    mix.values = weight.row(0);
    mix.positions = weight.outputs;
    return with.kernels.mix(mix);
  }
  const int64_t most = most_expanded_outputs(weight.width, bytes);
  mix.value_stride = expanded_stride(weight.width, bytes);
  std::byte* expanded =
      scratch(ScratchUse::expanded, std::min(most, weight.outputs) * mix.value_stride * bytes);
  mix.values = expanded;
  for (int64_t first = 0; first < weight.outputs; first += most) {
    mix.shares = block.in[0] + first;
    mix.positions = std::min(most, weight.outputs - first);
    weight.format->expand(with.kernels, {view, first, mix.positions, expanded, mix.value_stride});
    with.kernels.mix(mix);
  }
}

}  // namespace

void CpuProcessor::matmul_by_head(const HeadProducts& products) const {
  const Machine with = machine();
  const int64_t tokens = products.in.count;
  const int64_t blocks = (tokens + kBlockQueries - 1) / kBlockQueries;  // a head
  const int64_t cost = std::min(tokens, kBlockQueries) * products.inputs() * products.outputs();
  share_out(with, products.heads * blocks, cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % blocks * kBlockQueries;
      const TokenBlock block(products, i / blocks, first, std::min(kBlockQueries, tokens - first));
      if (products.transposed) {
        multiply_by_columns(with, block);
      } else {
        multiply_by_rows(with, block);
      }
      copy_kept(block);
    }
  });
}

}  // namespace klotski::cpu
