#pragma once

// The reference's operations as a device computes them: a call returns at once, and the operation
// runs later in a stream.

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "device/testing_streams.h"
#include "kernels/cuda/free_list.h"
#include "kernels/reference/reference_processor.h"

namespace klotski::testing {

// The arena that a plan gives to operations, and the stream that they run in.
class StreamMemory final : public ProcessorMemory {
 public:
  explicit StreamMemory(StreamDevice& device)
      : ProcessorMemory(false), device_(device), stream_(device.new_stream()) {}

  Stream& stream() { return *stream_; }

  std::byte* take(uint64_t bytes) override { return arena_->take(bytes); }
  void give_back(std::byte* memory, uint64_t bytes) override { arena_->give_back(memory, bytes); }
  void lend(std::span<std::byte> memory) override { arena_->lend(memory); }
  void use_arena(std::span<std::byte> arena) override {
    stream_->finish();
    arena_.reset();
    if (!arena.empty()) arena_.emplace(arena);
  }

  void upload(std::byte* to, const void* from, uint64_t bytes) override {
    if (bytes == 0) return;
    const auto* begin = static_cast<const std::byte*>(from);
    stream_->add([to, taken = std::vector(begin, begin + bytes)] {
      std::memcpy(to, taken.data(), taken.size());
    });
  }
  void download(void* to, const std::byte* from, uint64_t bytes) override {
    if (bytes > 0) stream_->add([=] { std::memcpy(to, from, bytes); });
    stream_->finish();
  }
  const std::byte* begin_download(const std::byte* from, uint64_t bytes) override {
    std::byte* const landing = landings_.data() + next_landing_++ % kMostLandings * kMostLanding;
    if (bytes > 0) stream_->add([=] { std::memcpy(landing, from, bytes); });
    return landing;
  }

  void finish() override { stream_->finish(); }
  StreamMark mark() override {
    Event& event = device_.new_event();
    stream_->record(event);
    event_of({next_mark_}) = &event;
    return {next_mark_++};
  }
  void finish_to(StreamMark mark) override {
    event_of(mark)->wait();
    stream_->throw_if_failed();
  }
  void wait_for_copies(const CopyQueue& copies) override {
    const auto* const event = static_cast<const Event*>(copies.published());
    if (event != nullptr) stream_->add([event] { event->wait(); });
  }
  void let_copies_wait(CopyQueue& copies, StreamMark mark) override {
    copies.wait_for_mark(event_of(mark));
  }

 private:
  // Marks share events as a device's do.
  Event*& event_of(StreamMark mark) { return marks_[mark.number % kMostMarks]; }

  StreamDevice& device_;
  std::optional<cuda::WorkingMemory> arena_;
  std::vector<std::byte> landings_ = std::vector<std::byte>(kMostLandings * kMostLanding);
  uint64_t next_landing_ = 0;
  std::array<Event*, kMostMarks> marks_{};
  uint64_t next_mark_ = 0;
  std::unique_ptr<Stream> stream_;  // last: its work uses the others
};

class StreamProcessor final : public Processor {
 public:
  explicit StreamProcessor(StreamDevice& device)
      : Processor(std::make_unique<StreamMemory>(device)),
        stream_(static_cast<StreamMemory&>(memory).stream()) {}

  std::string name() const override { return "reference in a stream"; }

  uint64_t scratch_bytes(const MostWork& most) const override {
    return reference_.scratch_bytes(most);
  }
  uint64_t expansion_bytes(const MostWork& most, Precision precision,
                           std::span<const DType> formats) const override {
    return reference_.expansion_bytes(most, precision, formats);
  }
  ElementOrder arrange(std::byte*, DType, const Shape&, Precision) const override {
    return ElementOrder::rows;
  }

  void embed(Rows out, const TensorView& table, std::span<const TokenId> tokens) const override {
    later([=, this] { reference_.embed(out, table, tokens); });
  }
  void rms_norm(Rows out, ConstRows in, const TensorView& weight, float epsilon,
                float offset) const override {
    later([=, this] { reference_.rms_norm(out, in, weight, epsilon, offset); });
  }
  void layer_norm(Rows out, ConstRows in, const TensorView& weight, const TensorView& bias,
                  float epsilon) const override {
    later([=, this] { reference_.layer_norm(out, in, weight, bias, epsilon); });
  }
  void matmul(Rows out, ConstRows in, const TensorView& weight, const TensorView& bias,
              Precision precision) const override {
    later([=, this] { reference_.matmul(out, in, weight, bias, precision); });
  }
  void matmul_by_head(const HeadProducts& products) const override {
    later([=, this] { reference_.matmul_by_head(products); });
  }
  void experts(std::span<const ExpertProduct> products, Precision precision) const override {
    later([=, this, of = copied(products)] { reference_.experts(of, precision); });
  }
  void rope(const RopeArguments& arguments) const override {
    later([=, this] { reference_.rope(arguments); });
  }
  void clip(std::span<float> values, float limit) const override {
    later([=, this] { reference_.clip(values, limit); });
  }
  void scale(std::span<float> values, float factor) const override {
    later([=, this] { reference_.scale(values, factor); });
  }
  void split_heads(ConstRows in, int64_t heads, std::span<const HeadPart> parts) const override {
    later([=, this, of = copied(parts)] { reference_.split_heads(in, heads, of); });
  }
  void apply_gates(Rows values, ConstRows gates, OutputGate function) const override {
    later([=, this] { reference_.apply_gates(values, gates, function); });
  }
  void causal_convolution(std::span<const ConvolutionArguments> sequences, const TensorView& weight,
                          Activation activation) const override {
    later([=, this, of = copied(sequences)] {
      reference_.causal_convolution(of, weight, activation);
    });
  }
  void gated_delta_rule(std::span<const DeltaRuleArguments> sequences,
                        const DeltaRule& rule) const override {
    later([=, this, of = copied(sequences)] { reference_.gated_delta_rule(of, rule); });
  }
  void store_kv(std::span<const KvRows> sequences) const override {
    later([this, of = WithPages(sequences)]() mutable { reference_.store_kv(of.placed()); });
  }
  void attention(std::span<const AttentionArguments> sequences) const override {
    later([this, of = WithPages(sequences)]() mutable { reference_.attention(of.placed()); });
  }
  void route(const RouteArguments& arguments) const override {
    later([=, this] { reference_.route(arguments); });
  }
  void sort_by_expert(std::span<const RoutedRows> parts, int64_t experts,
                      std::span<int32_t> in_rows, std::span<int32_t> out_rows,
                      std::span<float> scales) const override {
    later([=, this, of = copied(parts)] {
      reference_.sort_by_expert(of, experts, in_rows, out_rows, scales);
    });
  }
  void scale_rows(Rows rows, std::span<const float> factors) const override {
    later([=, this] { reference_.scale_rows(rows, factors); });
  }
  void add(Rows out, ConstRows in) const override {
    later([=, this] { reference_.add(out, in); });
  }
  void gather(Rows out, ConstRows in, std::span<const int32_t> rows) const override {
    later([=, this] { reference_.gather(out, in, rows); });
  }
  void scatter(Rows out, ConstRows in, std::span<const int32_t> rows) const override {
    later([=, this] { reference_.scatter(out, in, rows); });
  }
  void scatter_add(Rows out, ConstRows in, std::span<const int32_t> rows) const override {
    later([=, this] { reference_.scatter_add(out, in, rows); });
  }
  void combine(Rows out, ConstRows results, std::span<const float> weights) const override {
    later([=, this] { reference_.combine(out, results, weights); });
  }
  void sigmoid(std::span<float> values) const override {
    later([=, this] { reference_.sigmoid(values); });
  }
  void most_likely(std::span<TokenId> tokens, ConstRows logits) const override {
    later([=, this] { reference_.most_likely(tokens, logits); });
  }

 private:
  // Descriptions of sequences with the addresses of their pages, all of which are the caller's.
  template <typename Sequence>
  class WithPages {
   public:
    explicit WithPages(std::span<const Sequence> sequences) : sequences_(copied(sequences)) {
      for (const Sequence& one : sequences_) {
        keys_.push_back(copied(one.cache.keys));
        values_.push_back(copied(one.cache.values));
      }
    }
    std::span<const Sequence> placed() {
      for (size_t i = 0; i < sequences_.size(); ++i) {
        sequences_[i].cache.keys = keys_[i];
        sequences_[i].cache.values = values_[i];
      }
      return sequences_;
    }

   private:
    std::vector<Sequence> sequences_;
    std::vector<std::vector<std::byte*>> keys_;
    std::vector<std::vector<std::byte*>> values_;
  };

  template <typename T>
  static std::vector<std::remove_const_t<T>> copied(std::span<T> values) {
    return {values.begin(), values.end()};
  }

  template <typename Operation>
  void later(Operation operation) const {
    stream_.add(std::move(operation));
  }

  ReferenceProcessor reference_;
  Stream& stream_;
};

}  // namespace klotski::testing
