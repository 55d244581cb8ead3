#pragma once

// The inner loops, compiled once for each instruction set. The files in cpu/isa/ include this
// header and nothing that defines inline functions which other files use: the linker keeps one copy
// of such a function, and it might be a copy with instructions that this processor does not have.

#include <cstddef>
#include <cstdint>

namespace klotski::cpu {

enum class WeightType { f32, f16, bf16 };

// Rows of a block: rows are laid out for the multiplying instructions in blocks, one after the
// other, and only the last block of a product may have fewer.
inline constexpr int64_t kBlockRows = 16;

// The most rows and outputs of one strip: their sums stay in the second-level cache.
inline constexpr int64_t kStripRows = 256;
inline constexpr int64_t kStripOutputs = 96;
// Scratch of a strip, for sums and weights on their way, at a multiple of kCacheLine.
inline constexpr int64_t kStripScratchBytes = 192 * 1024;
inline constexpr int64_t kCacheLine = 64;

// A range of columns of a block begins at a multiple of this.
inline constexpr int64_t kColumnStep = 32;

// Some columns of a block. Where an instruction set pads rows with zeros, whoever packs the last
// columns does.
struct BlockColumns {
  std::byte* block;          // Products::block_bytes(width) of memory, at a multiple of kCacheLine
  const float* const* rows;  // [count]: the element of column `begin`
  int64_t count;             // rows, 1 to kBlockRows
  int64_t width;             // columns in all
  int64_t begin;             // a multiple of kColumnStep
  int64_t end;
};

// out[r][out_offset + n] = sum over k of row r [k] * weight[n][k]
struct Strip {
  float* const* out;  // [rows]
  int64_t out_offset;
  const std::byte* blocks;  // the rows
  int64_t rows;             // 1 to kStripRows
  int64_t width;            // at least 1
  const void* weight;       // [outputs][width], or rows that were arranged
  int64_t weight_stride;    // from one row of weights to the next: elements, for compact rows bytes
  WeightType type;
  bool arranged;
  // Compact rows, for products that read them: bytes of their header (0: rows are plain), and
  // columns before the first, a multiple of 64.
  int64_t compact_header = 0;
  int64_t first_column = 0;
  int64_t outputs;  // 1 to kStripOutputs; arranged: whole groups
  std::byte* scratch;
  // The weights that the thread reads next, as many and in the same order, which may be prefetched
  // at the end. Null where they are not known.
  const void* next = nullptr;
};

// An order of weights that is faster to multiply by than that of files, for weights that are used
// again and again.
struct Arrangement {
  int64_t rows;     // rows of a group, which stays where it is: a divisor of kColumnStep
  int64_t columns;  // the width is a multiple of it
  // Rearranges one group in place; the scratch has room for it.
  void (*arrange)(std::byte* rows, int64_t width, std::byte* scratch);
};

// A block of compact weights (tensor/compact.h).
inline constexpr int64_t kCompactColumns = 64;
inline constexpr int64_t kCompactBytes = 96;

// Rows of compact weights, to become plain ones.
struct CompactRows {
  const std::byte* rows;
  int64_t stride;  // bytes from one row to the next
  int64_t count;
  int64_t header_bytes;
  int64_t first_column;  // a multiple of kCompactColumns
  int64_t columns;
  uint16_t* out;
  int64_t
      out_stride;  // elements; each row has room for columns up to a multiple of kCompactColumns
};

// Formats of quantised blocks (tensor/block_formats.h), in the order of DType.
enum class BlockType {
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  iq4_xs,
  mxfp4,
  count_
};

// Rows of quantised blocks, to become plain numbers.
struct BlockRows {
  BlockType type;
  const std::byte* rows;
  int64_t stride;  // bytes from one row to the next
  int64_t count;
  int64_t first_column;  // the first of a block
  int64_t columns;
  WeightType out_type;  // f32, or bf16: rounded
  void* out;
  int64_t out_stride;  // numbers
};

// One way to multiply. An output's value depends on its row and its weights alone, not on the other
// rows or outputs of the strip, nor on whether the weights were arranged.
struct Products {
  int64_t (*block_bytes)(int64_t width);  // a multiple of kCacheLine
  void (*pack)(const BlockColumns& columns);
  void (*multiply)(const Strip& strip);
  const Arrangement* arrangement;  // null where weights are best as they are
  bool reads_compact;              // false: compact weights have to be expanded first
};

// The scores of one query with consecutive positions, of which it sees two ranges.
struct ScoreRow {
  float* scores;  // [count]; become shares of the softmax, not yet divided by their sum
  int64_t count;
  int64_t begin[2];  // visible ranges within the row, ascending: begin[i] <= position < end[i];
  int64_t end[2];    // begin[i] >= end[i]: range i is empty
  float scale;       // factor of the scores
};

// The largest score so far, and the sum of the shares relative to it.
struct SoftmaxState {
  float largest;  // before any score: minus infinity
  float sum;
};

// out[r] += sum over p of shares[r][p] * values[p], p ascending
struct Mix {
  float* const* out;    // [rows][width]
  const float* shares;  // [rows][positions], rows shares_stride apart
  int64_t shares_stride;
  const void* values;  // [positions][width], positions value_stride elements apart
  int64_t value_stride;
  WeightType type;
  int64_t rows;
  int64_t positions;
  int64_t width;
};

enum class GateFunction { silu, gelu_tanh, relu, sigmoid };

// Tokens of one head of the gated delta rule, and some columns of its state: each column is
// computed from the values of its own.
struct DeltaColumns {
  float* state;  // [keys][columns], rows state_stride apart: before the tokens, then after them
  int64_t state_stride;
  int64_t keys;
  int64_t columns;
  int64_t tokens;
  const float* queries;   // [tokens][keys], rows row_stride apart, scaled
  const float* key_rows;  // [tokens][keys], rows row_stride apart, of length 1
  const float* values;    // [tokens][columns], rows row_stride apart
  int64_t row_stride;
  const float* updates;  // update rates by token, rate_stride apart
  const float* decays;   // decays by token, rate_stride apart
  int64_t rate_stride;
  float* out;  // [tokens][columns], rows out_stride apart
  int64_t out_stride;
};

struct Kernels {
  const char* name;
  Products f32;          // inputs as they are; weights of every type
  const Products* bf16;  // inputs rounded to bf16, bf16 weights; null where it would not be faster
  void (*expand)(const CompactRows& rows);
  void (*expand_blocks)(const BlockRows& rows);
  // Takes one more row of scores in; returns the factor for earlier results.
  float (*softmax)(const ScoreRow& row, SoftmaxState& state);
  void (*scale)(float* values, int64_t count, float factor);
  void (*mix)(const Mix& mix);
  // values = function(values) * up
  void (*gate)(float* values, const float* up, int64_t count, GateFunction function);
  // values = Activation::clamped_swiglu of gates `values` and up
  void (*clamped_swiglu)(float* values, const float* up, int64_t count, float slope, float limit);
  float (*sum_of_squares)(const float* values, int64_t count);
  void (*delta_rule)(const DeltaColumns& columns);
};

// The fastest set that this processor can run, or the set that the environment variable KLOTSKI_CPU
// names.
const Kernels& kernels();

// Every one that this processor can run, the plainest first: all are tested.
struct KernelList {
  const Kernels* const* begin;
  int count;
};
KernelList all_kernels();

}  // namespace klotski::cpu
