#pragma once

// Every operation of the forward pass, named once. Activations are float32, row-major and
// contiguous; weights keep the type they have in the file. All sums are accumulated in float32, on
// the CPU in an order that does not depend on the other rows, so that a row's result is the same
// bit for bit in any batch.
//
// Rows, lists and weights lie in the memory of the operations (ProcessorMemory), which the program
// cannot read where that is a device's. Their descriptions (arguments, spans of arguments, page
// addresses) are the program's own.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "kernels/operations.h"
#include "tensor/tensor_view.h"

namespace klotski {

class CopyQueue;

// Activations: `count` rows of `width` floats.
struct Rows {
  float* data = nullptr;
  int64_t count = 0;
  int64_t width = 0;

  float* row(int64_t i) const { return data + i * width; }
};

struct ConstRows {
  const float* data = nullptr;
  int64_t count = 0;
  int64_t width = 0;

  ConstRows(const float* d, int64_t c, int64_t w) : data(d), count(c), width(w) {}
  ConstRows(const Rows& rows) : data(rows.data), count(rows.count), width(rows.width) {}
  const float* row(int64_t i) const { return data + i * width; }
};

enum class Activation { silu, gelu, gelu_tanh, relu, clamped_swiglu };

// Parameters of Activation::clamped_swiglu, which is g * sigmoid(slope * g) * (u + 1) of a gate g
// that is at most `limit` and an up u in [-limit, limit]; NaN stays NaN. Other activations are
// multiplied by the up as it is.
struct ClampedSwiglu {
  float slope = 1.702f;
  float limit = 7.0f;

  bool operator==(const ClampedSwiglu&) const = default;
};

// How rows are multiplied by weights. Sums are float32 either way, and only products with bf16
// weights (and keys) know the difference, and those with packed formats of F32 numbers, which a
// processor that multiplies bf16 numbers faster rounds as well. Others are always of f32 inputs.
enum class Precision {
  f32,       // inputs as they are
  two_bf16,  // matrix products only: inputs as the sum of two bf16 numbers, 16 bits of fraction
  bf16,      // inputs rounded to bf16, where the processor multiplies bf16 inputs faster
};

struct RopeArguments {
  Rows heads;                          // [tokens][head_count * head_dim], rotated in place
  int64_t head_dim = 0;                // 2 * pairs numbers of each head are rotated
  int64_t pairs = 0;                   // at most (head_dim - first) / 2
  int64_t first = 0;                   // numbers of each head before the rotated ones
  std::span<const int32_t> positions;  // one a token
  std::span<const float> frequencies;  // [tables][pairs], radians a position
  std::span<const int32_t> tables;     // one a token: which row of frequencies is its own
  float scale = 1.0f;                  // factor of sine and cosine (yarn, longrope)
  bool interleaved = false;            // pairs are (2i, 2i+1) instead of (i, i + pairs)
};

// Products with a matrix for each head: some rows of `weight`, which has as many rows for every
// head. out = in * matrix^T, head by head of each token; transposed: out = in * matrix. Numbers of
// an input head after those that are multiplied follow the products unchanged.
struct HeadProducts {
  Rows out;      // [tokens][heads * (outputs() + kept())]
  ConstRows in;  // [tokens][heads * (inputs() + kept())]
  int64_t heads = 1;
  TensorView weight;      // in rows, with its columns whole
  int64_t first_row = 0;  // first row of a head's matrix among the head's rows of weight
  int64_t rows = 0;       // rows of a head's matrix
  bool transposed = false;
  Precision precision = Precision::f32;

  int64_t inputs() const { return transposed ? rows : weight.columns(); }
  int64_t outputs() const { return transposed ? weight.columns() : rows; }
  int64_t kept() const { return in.width / heads - inputs(); }
  int64_t head_rows() const { return weight.rows() / heads; }
  const float* in_head(int64_t token, int64_t head) const {
    return in.row(token) + head * (inputs() + kept());
  }
  float* out_head(int64_t token, int64_t head) const {
    return out.row(token) + head * (outputs() + kept());
  }
  TensorView matrix(int64_t head) const {
    const int64_t begin = head * head_rows() + first_row;
    return rows_between(weight, begin, begin + rows);
  }
};

// One of the parts that every head of a row is split into.
struct HeadPart {
  Rows out;           // its numbers of head h are written from column first + h * width on
  int64_t first = 0;  // first column of `out`
  int64_t width = 0;  // numbers of a head
};
inline constexpr size_t kMostHeadParts = 4;

enum class OutputGate { sigmoid, silu };

// New rows of one sequence for a causal convolution:
// out[t][c] = activation(sum over j of weight[c][j] * in[t - taps + 1 + j][c]).
struct ConvolutionArguments {
  Rows out;      // [tokens][channels]
  ConstRows in;  // [tokens][channels], at least one token
  // Inputs of the taps - 1 tokens before the first one, [taps - 1][channels], the oldest first;
  // null: zeros.
  const float* past = nullptr;
  float* next = nullptr;  // inputs of the last taps - 1 tokens, as `past` of the tokens to come
};

// The gated delta rule (linear attention with a state S for each value head, [key_dim][value_dim]).
// For a token with query q and key k, both divided by their lengths, value v, and its head's
// decay d and update rate u:
//   S = d * S;  S = S + k (u * (v - S^T k))^T;  out = S^T q / sqrt(key_dim)
// where u = sigmoid of the first rate, d = exp(-exp(log_decay) * softplus(second rate +
// step_bias)).
struct DeltaRule {
  int64_t key_heads = 0;  // each serves value_heads / key_heads neighbouring value heads
  int64_t value_heads = 0;
  int64_t key_dim = 0;  // numbers of a head of queries or keys, 1 to kMostDeltaKeys
  int64_t value_dim = 0;
  TensorView log_decay;  // [value_heads], F32, F16 or BF16
  TensorView step_bias;  // [value_heads], F32, F16 or BF16

  int64_t key_width() const { return key_heads * key_dim; }
  int64_t value_width() const { return value_heads * value_dim; }
  int64_t mixed_width() const { return 2 * key_width() + value_width(); }
  int64_t state_numbers() const { return value_heads * key_dim * value_dim; }
};
inline constexpr int64_t kMostDeltaKeys = 1024;

// New rows of one sequence for the gated delta rule.
struct DeltaRuleArguments {
  Rows out;  // [tokens][value_heads * value_dim]
  // Queries, keys and values of all heads, [tokens][DeltaRule::mixed_width()]. Queries and keys are
  // scaled in place.
  Rows mixed;
  // The two rates of every value head, [tokens][2 * value_heads]: first rates, then second ones.
  // They become update rates and decays in place.
  Rows rates;
  const float* state = nullptr;  // [value_heads][key_dim][value_dim]; null: zeros
  float* next_state = nullptr;   // the state after the last token
};

// Keys and values of one sequence and layer, in pages of `page_tokens` positions.
struct KvPages {
  std::span<std::byte* const> keys;  // per page: [page_tokens][kv_heads * head_dim]
  // Per page: [page_tokens][kv_heads * value_dim]. None: the value of a position is the first
  // value_dim numbers of its key.
  std::span<std::byte* const> values;
  DType type = DType::F32;  // F32 or BF16
  int64_t page_tokens = 0;

  // A cache that keeps only the first and the latest positions (lossy): a token sees the first
  // kept_prefix positions and its last kept_window ones, itself included. Pages without any of
  // them may be null. kept_window 0: all positions are kept.
  int64_t kept_prefix = 0;
  int64_t kept_window = 0;
};

// New keys and values of consecutive positions, and the pages that hold these positions.
struct KvRows {
  KvPages cache;  // written to; to BF16 rounded to nearest, ties to even
  int64_t first_position = 0;
  ConstRows keys;    // [tokens][kv_heads * head_dim]
  ConstRows values;  // [tokens][kv_heads * value_dim]; not read where keys have the values
};

// Attention of consecutive query tokens of one sequence over its cached positions, causal unless
// seen_end says otherwise. Value
// heads may have another width (value_dim) than query and key heads (head_dim).
struct AttentionArguments {
  Rows output;        // [tokens][query_heads * value_dim]
  ConstRows queries;  // [tokens][query_heads * head_dim]
  int64_t query_heads = 0;
  int64_t kv_heads = 0;  // each serves query_heads / kv_heads neighbouring query heads
  KvPages cache;         // holds all positions that are seen, but for those that it does not keep
  int64_t first_position = 0;
  float scale = 1.0f;      // factor of the scores
  int64_t window = 0;      // a token sees the last `window` positions, itself included; 0: all
  int64_t chunk = 0;       // a token sees positions from the last multiple of `chunk` on; 0: all
  int64_t seen_begin = 0;  // positions before this one are not seen
  // Every token sees the positions before this one, whatever its own. 0: those up to its own.
  int64_t seen_end = 0;
  // Added to scores by the distance from a token to the position that it sees, [2 * bias_reach +
  // 1][query_heads]: of distances -bias_reach .. bias_reach, beyond which the bias stays the same.
  // Empty: none.
  std::span<const float> position_bias = {};
  int64_t bias_reach = 0;
  // Per query head a score that takes its share of the softmax, or none.
  std::span<const float> sinks = {};
  Precision precision = Precision::f32;  // precision of the scores

  int64_t head_dim() const { return queries.width / query_heads; }
  int64_t value_dim() const { return output.width / query_heads; }
  // The bias of a head's score of a position.
  float bias(int64_t head, int64_t token, int64_t position) const {
    const int64_t distance = std::clamp(position - first_position - token, -bias_reach, bias_reach);
    return position_bias[static_cast<size_t>((bias_reach + distance) * query_heads + head)];
  }
  // Numbers from the value of a head to the value of the next.
  int64_t value_stride() const { return cache.values.empty() ? head_dim() : value_dim(); }
  std::span<std::byte* const> value_pages() const {
    return cache.values.empty() ? cache.keys : cache.values;
  }
};

// The positions a query token sees: [prefix_begin, prefix_end) and [begin, end).
struct VisiblePositions {
  int64_t prefix_begin = 0;
  int64_t prefix_end = 0;
  int64_t begin = 0;
  int64_t end = 0;

  int64_t count() const { return prefix_end - prefix_begin + end - begin; }
};
VisiblePositions visible_positions(const AttentionArguments& arguments, int64_t token);

// sparse_mixer: the largest logits are chosen one after the other. The weight of each is its share
// of a softmax over the experts that were not chosen before and whose logit is near its own.
enum class ScoreFunction { softmax, sigmoid, sparse_mixer };
enum class GroupScore { best, best_two };  // a group counts as its best expert, or the sum of two

// How a router's logits become a choice of experts. Plain data, part of the model's description.
struct RouterRule {
  ScoreFunction score = ScoreFunction::softmax;
  int top_k = 1;
  int groups = 1;       // experts are divided into this many groups of equal size ...
  int groups_kept = 1;  // ... and only experts of the best groups can be chosen
  GroupScore group_score = GroupScore::best;
  bool renormalise = false;  // chosen weights are divided by their sum
  float least_sum = 0.0f;    // a smaller sum counts as this one when weights are renormalised
  // sparse_mixer: a logit x is near the chosen c where (c - x) / max(|x|, c) <= 2 * jitter.
  float jitter = 0.0f;
  float scale = 1.0f;  // factor of the weights, applied last
};

struct RouteArguments {
  ConstRows logits;                       // [tokens][experts]
  std::span<const float> selection_bias;  // added to the score for the choice only; may be empty
  RouterRule rule;
  std::span<ExpertId> experts;  // [tokens][top_k], best first, ties to the lower expert
  std::span<float> weights;     // [tokens][top_k]
  // How far each choice was from another, [tokens]: the score of the last chosen expert over that
  // of the best one left, or of the last kept group over the next where that is nearer; for
  // sparse_mixer also how far a logit is from entering or leaving a softmax, times the chosen
  // expert's share of all. Infinite where nothing was left. Empty: not wanted.
  std::span<float> gaps = {};
};

// The choices of rows that lie together. Choice i is of row first_row + i / top_k of the experts'
// input rows, and its result goes to row first_output + i of their output rows.
struct RoutedRows {
  std::span<const ExpertId> experts;  // [rows][top_k]
  int64_t top_k = 1;
  int64_t first_row = 0;
  int64_t first_output = 0;
  std::span<const float> scales = {};  // [rows][top_k], factors of the experts' inputs, or none
};

// One expert and the rows that chose it: out = down(activation(gate(in)) * up(in)), each of the
// three with its bias where it has one. Without an up: out = down(activation(gate(in))), which
// clamped_swiglu is not made for.
struct ExpertProduct {
  Rows out;
  ConstRows in;
  std::span<const int32_t> out_rows;  // where the results go, none twice; empty: 0, 1, ...
  std::span<const int32_t> in_rows;   // as many as out_rows; empty: 0, 1, ...
  TensorView gate;                    // [width][in.width]
  TensorView up;                      // [width][in.width], or empty
  TensorView down;                    // [out.width][width]
  Activation activation = Activation::silu;
  ClampedSwiglu swiglu = {};
  // Factors of input rows, one for each of rows(); empty: 1.
  std::span<const float> in_scales = {};
  TensorView gate_bias = {};  // [width], or empty
  TensorView up_bias = {};    // [width], or empty
  TensorView down_bias = {};  // [out.width], or empty

  bool gated() const { return !up.shape.empty(); }
  int64_t rows() const { return in_rows.empty() ? in.count : static_cast<int64_t>(in_rows.size()); }
};

// A mark in the stream of a processor's operations, between two calls.
struct StreamMark {
  uint64_t number = 0;
};

// The memory that the operations of a processor work in, and the way there and back.
class ProcessorMemory {
 public:
  explicit ProcessorMemory(bool readable_by_program) : readable(readable_by_program) {}
  virtual ~ProcessorMemory() = default;
  ProcessorMemory(const ProcessorMemory&) = delete;
  ProcessorMemory& operator=(const ProcessorMemory&) = delete;

  const bool readable;  // whether the program can read the memory as its own

  // Bytes with any values, aligned for any element; throws does_not_fit.
  virtual std::byte* take(uint64_t bytes) = 0;
  // Operations that use the memory may still be under way: a later call that takes it runs after
  // them.
  virtual void give_back(std::byte* memory, uint64_t bytes) = 0;
  // `from` is free on return.
  virtual void upload(std::byte* to, const void* from, uint64_t bytes) = 0;
  // The bytes have arrived on return.
  virtual void download(void* to, const std::byte* from, uint64_t bytes) = 0;
  // A download of kMostLanding bytes at most in the order of calls: returns where they lie for the
  // program once that was waited for, until kMostLandings more have begun. `from` stays till then.
  virtual const std::byte* begin_download(const std::byte* from, uint64_t bytes) = 0;
  // Returns when all operations called before are done; throws their errors.
  virtual void finish() = 0;
  // Marks the stream; finish_to() returns when all operations before the mark are done. There may
  // be kMostMarks that were not waited for.
  virtual StreamMark mark() = 0;
  virtual void finish_to(StreamMark mark) = 0;
  // Operations called after this run after the copies that the queue has published.
  virtual void wait_for_copies(const CopyQueue& copies) = 0;
  // Copies that the queue is asked for after this happen after the operations before the mark. A
  // mark older than the last kMostMarks stands for a later one.
  virtual void let_copies_wait(CopyQueue& copies, StreamMark mark) = 0;
  // Lends more memory to take from, until lend() is called again; all that was taken of it has been
  // given back by then. Where memory is the program's, there is enough without.
  virtual void lend(std::span<std::byte> memory) = 0;
  // The part of a device's memory that operations take from and compute with, until an empty one is
  // given: all that was taken has been given back by then. See ArenaUse.
  virtual void use_arena(std::span<std::byte> arena) = 0;

  static constexpr uint64_t kMostMarks = 16;
  static constexpr uint64_t kMostLanding = uint64_t{64} << 10;
  static constexpr uint64_t kMostLandings = 48;
};

// The most that operations are called with at once.
struct MostWork {
  int64_t rows = 0;
  int64_t choices = 1;  // experts of a row
  int64_t in_width = 1;
  int64_t expert_width = 1;
  int64_t head_dim = 1;
};

// A processor: one implementation of every operation, with the memory, streams and threads that it
// owns. Several may exist in one process, made and destroyed at any time; none is destroyed while
// one of its operations is called.
class Processor {
 public:
  virtual ~Processor() = default;
  Processor(const Processor&) = delete;
  Processor& operator=(const Processor&) = delete;

  KLOTSKI_OPERATIONS(KLOTSKI_PURE)

  // The instructions that operations are made of, as a profile names them.
  virtual std::string name() const = 0;

  // The program's threads that operations compute with, the caller included.
  virtual int threads() const { return 1; }
  // Calls body(begin, end) on these threads, for ranges that cover 0 .. count - 1; returns when all
  // have ended. For work on the program's memory that is no operation.
  virtual void parallel_for(int64_t count,
                            const std::function<void(int64_t, int64_t)>& body) const {
    if (count > 0) body(0, count);
  }

 protected:
  explicit Processor(std::unique_ptr<ProcessorMemory> own) : own_memory_(std::move(own)) {}

 private:
  const std::unique_ptr<ProcessorMemory> own_memory_;

 public:
  ProcessorMemory& memory = *own_memory_;
};

// Lets a processor use an arena for as long as this lives.
class ArenaUse {
 public:
  ArenaUse(const Processor& ops, std::span<std::byte> arena) : memory_(ops.memory) {
    memory_.use_arena(arena);
  }
  ~ArenaUse() { memory_.use_arena({}); }
  ArenaUse(const ArenaUse&) = delete;
  ArenaUse& operator=(const ArenaUse&) = delete;

 private:
  ProcessorMemory& memory_;
};

// Index of the largest of a row's logits, the first of equal ones; -1 where one is a NaN or
// +infinity or all are -infinity. The logits lie in the program's memory.
TokenId most_likely(std::span<const float> logits);

// The instruction set whose inner loops a CpuProcessor runs where none is asked for.
struct CpuKernels {
  std::string chosen;
  std::vector<std::string> available;  // sets that this processor runs, the fastest last
  bool forced = false;                 // chosen by the environment variable KLOTSKI_CPU
  bool bf16 = false;                   // has instructions of its own for products of bf16
};
CpuKernels cpu_kernels();

}  // namespace klotski
