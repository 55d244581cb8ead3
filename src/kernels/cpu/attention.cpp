#include <algorithm>
#include <limits>

#include "kernels/cpu/multiply.h"

namespace klotski::cpu {

namespace {

// The queries that are computed together: consecutive tokens of a sequence, and heads that share a
// key-value head.
struct Job {
  const AttentionArguments* sequence;
  int64_t first_head;
  int64_t heads;
  int64_t first_token;
  int64_t tokens;
};

// Rows are token by token, head by head.
class QueryBlock {
 public:
  QueryBlock(const Machine& with, const Job& job)
      : kernels_(with.kernels),
        arguments_(*job.sequence),
        type_(weight_type(arguments_.cache.type)),
        products_(products_for(with.kernels, type_, arguments_.precision)),
        first_head_(job.first_head),
        heads_(job.heads),
        first_token_(job.first_token),
        kv_head_(job.first_head * arguments_.kv_heads / arguments_.query_heads),
        head_dim_(arguments_.head_dim()),
        value_dim_(arguments_.value_dim()),
        value_stride_(arguments_.value_stride()),
        value_pages_(arguments_.value_pages()),
        states_(static_cast<size_t>(job.tokens * heads_),
                {-std::numeric_limits<float>::infinity(), 0.0f}) {
    for (int64_t token = job.first_token; token < job.first_token + job.tokens; ++token) {
      seen_.push_back(visible_positions(arguments_, token));
      for (int64_t head = first_head_; head < first_head_ + heads_; ++head) {
        queries_.push_back(arguments_.queries.row(token) + head * head_dim_);
        out_.push_back(arguments_.output.row(token) + head * value_dim_);
      }
    }
  }

  void run() {
    const auto rows = static_cast<int64_t>(queries_.size());
    blocks_ = scratch(ScratchUse::inputs, blocks_of(rows) * products_.block_bytes(head_dim_));
    pack_rows(products_, blocks_, queries_, head_dim_, 0, head_dim_);
    auto* scores = reinterpret_cast<float*>(
        scratch(ScratchUse::rows, rows * kChunk * static_cast<int64_t>(sizeof(float))));
    for (int64_t r = 0; r < rows; ++r) scores_.push_back(scores + r * kChunk);
    for (float* row : out_) std::fill_n(row, value_dim_, 0.0f);

    // Positions that any token sees: the first token sees the furthest back, the last one the
    // furthest on. A kept prefix is visited on its own, even for tokens that see on without a gap.
    const int64_t prefix = arguments_.cache.kept_window > 0 ? arguments_.cache.kept_prefix : 0;
    const VisiblePositions& first = seen_.front();
    const int64_t end = seen_.back().end;
    visit_chunks(first.prefix_begin, std::min(prefix, end));
    visit_chunks(std::max(first.begin, prefix), end);
    finish();
  }

 private:
  void visit_chunks(int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t chunk = begin / kChunk * kChunk;
      const int64_t chunk_end = std::min(end, chunk + kChunk);
      visit(chunk, begin, chunk_end);
      begin = chunk_end;
    }
  }

  // Calls body(page, first position in the page, place in the chunk, count) for runs of positions.
  template <typename Body>
  void for_runs(int64_t chunk, int64_t begin, int64_t end, const Body& body) const {
    const int64_t page_tokens = arguments_.cache.page_tokens;
    while (begin < end) {
      const int64_t count =
          std::min({end - begin, page_tokens - begin % page_tokens, kStripOutputs});
      body(static_cast<size_t>(begin / page_tokens), begin % page_tokens, begin - chunk, count);
      begin += count;
    }
  }

  // The key or the value of a position of a page, of this block's head; heads are `stride` elements
  // apart.
  const std::byte* head_of(const std::byte* page, int64_t position, int64_t stride) const {
    const int64_t element = (position * arguments_.kv_heads + kv_head_) * stride;
    return page + element * bytes_per_element(arguments_.cache.type);
  }

  // Attends to positions begin .. end - 1, all of one chunk.
  void visit(int64_t chunk, int64_t begin, int64_t end) {
    for_runs(chunk, begin, end, [&](size_t page, int64_t first, int64_t place, int64_t count) {
      products_.multiply({.out = scores_.data(),
                          .out_offset = place,
                          .blocks = blocks_,
                          .rows = static_cast<int64_t>(queries_.size()),
                          .width = head_dim_,
                          .weight = head_of(arguments_.cache.keys[page], first, head_dim_),
                          .weight_stride = arguments_.kv_heads * head_dim_,
                          .type = type_,
                          .arranged = false,
                          .outputs = count,
                          .scratch = scratch(ScratchUse::strip, kStripScratchBytes)});
    });
    take_scores(chunk, begin, end);
    for_runs(chunk, begin, end, [&](size_t page, int64_t first, int64_t place, int64_t count) {
      const Mix run{.out = out_.data(),
                    .shares = scores_[0] + place,
                    .shares_stride = kChunk,
                    .values = head_of(value_pages_[page], first, value_stride_),
                    .value_stride = arguments_.kv_heads * value_stride_,
                    .type = type_,
                    .rows = static_cast<int64_t>(queries_.size()),
                    .positions = count,
                    .width = value_dim_};
      mix_seen(run, chunk + place);
    });
  }

  // Values that a query does not see must not touch it, not even times zero: they may be no
  // numbers. `first` is the position of the run's first value.
  void mix_seen(const Mix& run, int64_t first) {
    const int64_t end = first + run.positions;
    const bool all = std::all_of(seen_.begin(), seen_.end(), [&](const VisiblePositions& seen) {
      return (first >= seen.begin && end <= seen.end) ||
             (first >= seen.prefix_begin && end <= seen.prefix_end);
    });
    if (all) return kernels_.mix(run);
    for (int64_t r = 0; r < run.rows; ++r) {
      const VisiblePositions& seen = seen_[static_cast<size_t>(r / heads_)];
      mix_range(run, r, std::max(first, seen.prefix_begin) - first,
                std::min(end, seen.prefix_end) - first);
      mix_range(run, r, std::max(first, seen.begin) - first, std::min(end, seen.end) - first);
    }
  }

  // One row, values begin .. end - 1 of a run.
  void mix_range(Mix run, int64_t row, int64_t begin, int64_t end) const {
    if (begin >= end) return;
    run.out += row;
    run.shares += row * run.shares_stride + begin;
    run.values = static_cast<const std::byte*>(run.values) +
                 begin * run.value_stride * bytes_per_element(arguments_.cache.type);
    run.rows = 1;
    run.positions = end - begin;
    kernels_.mix(run);
  }

  // Scores become shares. A row begins with its chunk, at a multiple of the chunk's size, and not
  // with the first position that is seen: the order in which shares are added up must not depend on
  // the other queries.
  void take_scores(int64_t chunk, int64_t begin, int64_t end) {
    const int64_t skipped = begin - chunk;
    for (size_t r = 0; r < scores_.size(); ++r) {
      const VisiblePositions& seen = seen_[r / static_cast<size_t>(heads_)];
      if (!arguments_.position_bias.empty()) add_bias(r, chunk, begin, end);
      const float factor = kernels_.softmax(
          {.scores = scores_[r],
           .count = end - chunk,
           .begin = {std::max(skipped, seen.prefix_begin - chunk),
                     std::max(skipped, seen.begin - chunk)},
           .end = {std::min(seen.prefix_end, end) - chunk, std::min(seen.end, end) - chunk},
           .scale = arguments_.scale},
          states_[r]);
      if (factor != 1.0f) kernels_.scale(out_[r], value_dim_, factor);
    }
  }

  // Adds the bias of distances to a row's scores of positions begin .. end - 1, which the softmax
  // multiplies by the scale.
  void add_bias(size_t row, int64_t chunk, int64_t begin, int64_t end) {
    const auto number = static_cast<int64_t>(row);
    const int64_t head = first_head_ + number % heads_;
    const int64_t token = first_token_ + number / heads_;
    for (int64_t p = begin; p < end; ++p) {
      scores_[row][p - chunk] += arguments_.bias(head, token, p) / arguments_.scale;
    }
  }

  // A sink joins the denominator and nothing else.
  void finish() {
    for (size_t r = 0; r < out_.size(); ++r) {
      SoftmaxState& state = states_[r];
      float factor = 1.0f;
      if (!arguments_.sinks.empty()) {
        const size_t head = static_cast<size_t>(first_head_) + r % static_cast<size_t>(heads_);
        float sink = arguments_.sinks[head];
        factor = kernels_.softmax(
            {.scores = &sink, .count = 1, .begin = {0, 0}, .end = {1, 0}, .scale = 1.0f}, state);
      }
      kernels_.scale(out_[r], value_dim_, factor / state.sum);
    }
  }

  const Kernels& kernels_;
  const AttentionArguments& arguments_;
  WeightType type_;
  const Products& products_;
  int64_t first_head_;
  int64_t heads_;
  int64_t first_token_;
  int64_t kv_head_;
  int64_t head_dim_;
  int64_t value_dim_;
  int64_t value_stride_;
  std::span<std::byte* const> value_pages_;
  std::byte* blocks_ = nullptr;
  std::vector<const float*> queries_;
  std::vector<float*> out_;
  std::vector<float*> scores_;
  std::vector<VisiblePositions> seen_;  // visible positions by token
  std::vector<SoftmaxState> states_;
};

// Queries that are computed together, at most: fewer where threads would have nothing to do, as
// with one token whose many heads share a key-value head.
int64_t block_queries(std::span<const AttentionArguments> sequences, int64_t threads) {
  constexpr int64_t kJobsPerThread = 2;
  int64_t queries = 0;
  for (const AttentionArguments& arguments : sequences) {
    queries += arguments.queries.count * arguments.query_heads;
  }
  const int64_t blocks = blocks_of(queries / (kJobsPerThread * threads));
  return std::clamp(blocks * kBlockRows, kBlockRows, kBlockQueries);
}

}  // namespace

void CpuProcessor::attention(std::span<const AttentionArguments> sequences) const {
  const Machine with = machine();
  const int64_t together = block_queries(sequences, with.pool.threads());
  std::vector<Job> jobs;
  int64_t cost = 0;
  for (const AttentionArguments& arguments : sequences) {
    const int64_t sharing = arguments.query_heads / arguments.kv_heads;  // a key-value head
    const int64_t heads = std::min(sharing, together);
    const int64_t block = together / heads;
    const int64_t tokens = arguments.queries.count;
    cost += (arguments.first_position + tokens) * tokens *
            (arguments.queries.width + arguments.output.width);
    for (int64_t token = 0; token < tokens; token += block) {
      for (int64_t head = 0; head < arguments.query_heads;) {
        const int64_t count = std::min(heads, sharing - head % sharing);
        jobs.push_back({&arguments, head, count, token, std::min(block, tokens - token)});
        head += count;
      }
    }
  }
  const auto count = static_cast<int64_t>(jobs.size());
  share_out(with, count, cost / std::max<int64_t>(count, 1), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      QueryBlock(with, jobs[static_cast<size_t>(i)]).run();
    }
  });
}

}  // namespace klotski::cpu
