#include <algorithm>

#include "kernels/cpu/multiply.h"
#include "kernels/reference/weight_row.h"

namespace klotski::cpu {

namespace {

// Whether gate and up are multiplied by inputs that are rounded: not where one of them is not bf16.
bool rounds_gated(const Kernels& kernels, const ExpertProduct& expert, Precision precision) {
  return rounds_inputs(kernels, precision) && is_multiplied_as_bf16(expert.gate.dtype) &&
         (!expert.gated() || is_multiplied_as_bf16(expert.up.dtype));
}

// Rows of one expert, few enough for a strip.
struct Piece {
  const ExpertProduct* product;
  int64_t rows;
  std::vector<const float*> in;
  std::vector<float*> out;
  std::span<const float> scales;  // factors of the input rows, or none
  WeightMatrix gate;
  WeightMatrix up;  // gate again where there is no up: nothing is multiplied by it
  WeightMatrix down;
  const Products* first;   // gate and up
  const Products* second;  // down
  std::byte* in_blocks = nullptr;
  std::byte* gated_blocks = nullptr;
  int64_t strip = 0;  // outputs of one, in the first and in the second half
  int64_t down_strip = 0;

  Piece(const Machine& with, const ExpertProduct& expert, int64_t begin, int64_t count,
        Precision precision)
      : product(&expert),
        rows(count),
        in(row_pointers(expert.in, expert.in_rows, begin, count)),
        out(row_pointers(expert.out, expert.out_rows, begin, count)),
        scales(expert.in_scales.empty() ? expert.in_scales
                                        : expert.in_scales.subspan(static_cast<size_t>(begin),
                                                                   static_cast<size_t>(count))),
        gate(expert.gate, rounds_gated(with.kernels, expert, precision)),
        up(expert.gated() ? expert.up : expert.gate, rounds_gated(with.kernels, expert, precision)),
        down(expert.down, rounds_inputs(with.kernels, precision)),
        first(&products_for(with.kernels, gate.type == up.type ? gate.type : WeightType::f32,
                            precision)),
        second(&products_for(with.kernels, down.type, precision)),
        strip(std::min(strip_outputs(with, *first, gate, rows),
                       strip_outputs(with, *first, up, rows))),
        down_strip(strip_outputs(with, *second, down, rows)) {
    check_order(*first, gate);
    check_order(*first, up);
    check_order(*second, down);
  }

  int64_t in_bytes() const { return blocks_of(rows) * first->block_bytes(gate.width); }
  int64_t gated_bytes() const { return blocks_of(rows) * second->block_bytes(down.width); }
  int64_t gate_strips() const { return (gate.outputs + strip - 1) / strip; }
  int64_t down_strips() const { return (down.outputs + down_strip - 1) / down_strip; }
};

// The jobs of all pieces, numbered through: the piece of a job, its number in the piece, and
// whether its thread also runs the job after it.
class Jobs {
 public:
  template <typename CountOf>
  Jobs(std::span<const Piece> pieces, const CountOf& count_of) {
    for (const Piece& piece : pieces) ends_.push_back(count() + count_of(piece));
  }
  int64_t count() const { return ends_.empty() ? 0 : ends_.back(); }

  template <typename Run>
  void run(int64_t first, int64_t last, const Run& run_job) const {
    auto piece =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
    for (int64_t job = first; job < last; ++job) {
      while (job >= ends_[piece]) ++piece;
      run_job(piece, job - (piece == 0 ? 0 : ends_[piece - 1]),
              job + 1 < std::min(last, ends_[piece]));
    }
  }

 private:
  std::vector<int64_t> ends_;
};

void apply_gate(const Kernels& kernels, const ExpertProduct& expert, float* values, const float* up,
                int64_t count) {
  switch (expert.activation) {
    case Activation::silu:
      return kernels.gate(values, up, count, GateFunction::silu);
    case Activation::gelu_tanh:
      return kernels.gate(values, up, count, GateFunction::gelu_tanh);
    case Activation::relu:
      return kernels.gate(values, up, count, GateFunction::relu);
    case Activation::gelu:
      return reference::gate({values, 1, count}, {up, 1, count}, expert.activation);
    case Activation::clamped_swiglu:
      return kernels.clamped_swiglu(values, up, count, expert.swiglu.slope, expert.swiglu.limit);
  }
}

// Adds elements `first` .. first + count - 1 of a bias to `count` numbers of each row, from number
// `at` on.
void add_expert_bias(std::span<float* const> rows, int64_t at, const TensorView& bias,
                     int64_t first, int64_t count) {
  if (!bias.data) return;
  for (int64_t n = 0; n < count; ++n) {
    const float offset = reference::load_element(bias, first + n);
    for (float* row : rows) row[at + n] += offset;
  }
}

// Lays out one block of a piece's input rows.
void pack_inputs(const Piece& piece, int64_t block) {
  const int64_t width = piece.gate.width;
  std::byte* to = piece.in_blocks + block * piece.first->block_bytes(width);
  const auto rows = rows_of_blocks(std::span(piece.in), block, block + 1);
  if (piece.scales.empty()) return pack_rows(*piece.first, to, rows, width, 0, width);
  auto* scaled = reinterpret_cast<float*>(
      scratch(ScratchUse::rows, kBlockRows * width * static_cast<int64_t>(sizeof(float))));
  const float* pointers[kBlockRows];
  for (size_t r = 0; r < rows.size(); ++r) {
    const float factor = piece.scales[static_cast<size_t>(block * kBlockRows) + r];
    float* row = scaled + static_cast<int64_t>(r) * width;
    for (int64_t k = 0; k < width; ++k) row[k] = rows[r][k] * factor;
    pointers[r] = row;
  }
  pack_rows(*piece.first, to, std::span(pointers, rows.size()), width, 0, width);
}

// One strip of activation(gate(in)) * up(in), laid out as inputs of the second half. `more`: the
// next strip follows.
void gate_strip(const Machine& with, const Piece& piece, int64_t strip, bool more) {
  const int64_t begin = strip * piece.strip;
  const int64_t count = std::min(piece.strip, piece.gate.outputs - begin);
  auto* sums = reinterpret_cast<float*>(scratch(
      ScratchUse::rows, 2 * piece.rows * piece.strip * static_cast<int64_t>(sizeof(float))));
  std::vector<float*> gate_rows(static_cast<size_t>(piece.rows));
  std::vector<float*> up_rows(gate_rows.size());
  for (size_t r = 0; r < gate_rows.size(); ++r) {
    gate_rows[r] = sums + static_cast<int64_t>(2 * r) * piece.strip;
    up_rows[r] = gate_rows[r] + piece.strip;
  }
  const Products& products = *piece.first;
  const std::byte* next_strip =
      more ? next_rows(products, piece.up, piece.gate, begin + count) : nullptr;
  const bool gated = piece.product->gated();
  multiply(with, products, {gate_rows, 0, begin, count}, piece.in_blocks, piece.gate,
           gated ? next_rows(products, piece.gate, piece.up, begin) : next_strip);
  if (gated) {
    multiply(with, products, {up_rows, 0, begin, count}, piece.in_blocks, piece.up, next_strip);
  } else {
    for (float* row : up_rows) std::fill_n(row, count, 1.0f);
  }
  add_expert_bias(gate_rows, 0, piece.product->gate_bias, begin, count);
  add_expert_bias(up_rows, 0, piece.product->up_bias, begin, count);
  for (size_t r = 0; r < gate_rows.size(); ++r) {
    apply_gate(with.kernels, *piece.product, gate_rows[r], up_rows[r], count);
  }
  pack_rows(*piece.second, piece.gated_blocks, gate_rows, piece.down.width, begin, begin + count);
}

void down_strip(const Machine& with, const Piece& piece, int64_t strip, bool more) {
  const int64_t begin = strip * piece.down_strip;
  const int64_t count = std::min(piece.down_strip, piece.down.outputs - begin);
  multiply(with, *piece.second, {piece.out, begin, begin, count}, piece.gated_blocks, piece.down,
           more ? next_rows(*piece.second, piece.down, piece.down, begin + count) : nullptr);
  add_expert_bias(piece.out, begin, piece.product->down_bias, begin, count);
}

// All pieces go through each step together, so that threads wait for each other three times and not
// three times an expert.
void run_pieces(const Machine& with, std::span<Piece> pieces) {
  int64_t in_bytes = 0;
  int64_t gated_bytes = 0;
  int64_t cost = 0;  // multiplications of one half
  for (const Piece& piece : pieces) {
    in_bytes += piece.in_bytes();
    gated_bytes += piece.gated_bytes();
    cost += piece.rows * piece.gate.outputs * piece.gate.width;
  }
  std::byte* in_blocks = scratch(ScratchUse::inputs, in_bytes);
  std::byte* gated_blocks = scratch(ScratchUse::gated, gated_bytes);
  for (Piece& piece : pieces) {
    piece.in_blocks = in_blocks;
    piece.gated_blocks = gated_blocks;
    in_blocks += piece.in_bytes();
    gated_blocks += piece.gated_bytes();
  }

  const Jobs packing(pieces, [](const Piece& piece) { return blocks_of(piece.rows); });
  share_out(with, packing.count(), kBlockRows * pieces[0].gate.width,
            [&](int64_t first, int64_t last) {
              packing.run(first, last,
                          [&](size_t p, int64_t block, bool) { pack_inputs(pieces[p], block); });
            });
  const Jobs gating(pieces, [](const Piece& piece) { return piece.gate_strips(); });
  share_out(with, gating.count(), 2 * cost / gating.count(), [&](int64_t first, int64_t last) {
    gating.run(first, last, [&](size_t p, int64_t strip, bool more) {
      gate_strip(with, pieces[p], strip, more);
    });
  });
  const Jobs downs(pieces, [](const Piece& piece) { return piece.down_strips(); });
  share_out(with, downs.count(), cost / downs.count(), [&](int64_t first, int64_t last) {
    downs.run(first, last, [&](size_t p, int64_t strip, bool more) {
      down_strip(with, pieces[p], strip, more);
    });
  });
}

}  // namespace

void CpuProcessor::experts(std::span<const ExpertProduct> products, Precision precision) const {
  const Machine with = machine();
  constexpr int64_t kMostBlocks = kStripRows / kBlockRows;  // bounds the scratch
  std::vector<Piece> pieces;
  int64_t blocks = 0;
  const auto flush = [&] {
    if (!pieces.empty()) run_pieces(with, pieces);
    pieces.clear();
    blocks = 0;
  };
  for (const ExpertProduct& product : products) {
    for (int64_t row = 0; row < product.rows();) {
      const int64_t rows = std::min(kStripRows, product.rows() - row);
      if (blocks + blocks_of(rows) > kMostBlocks) flush();
      pieces.emplace_back(with, product, row, rows, precision);
      blocks += blocks_of(rows);
      row += rows;
    }
  }
  flush();
}

ElementOrder CpuProcessor::arrange(std::byte* data, DType dtype, const Shape& shape,
                                   Precision precision) const {
  const Machine with = machine();
  const TensorView view{.data = data, .dtype = dtype, .shape = shape};
  const WeightMatrix weight(view, false);
  const Arrangement* order = products_for(with.kernels, weight.type, precision).arrangement;
  if (!order || !format_of(dtype).may_be_arranged || weight.outputs % order->rows != 0 ||
      weight.width % order->columns != 0) {
    return ElementOrder::rows;
  }
  const int64_t bytes = order->rows * weight.row_bytes;
  share_out(with, weight.outputs / order->rows, bytes, [&](int64_t first, int64_t last) {
    std::byte* copy = scratch(ScratchUse::rows, bytes);
    for (int64_t group = first; group < last; ++group) {
      order->arrange(data + group * bytes, weight.width, copy);
    }
  });
  return ElementOrder::arranged;
}

}  // namespace klotski::cpu
