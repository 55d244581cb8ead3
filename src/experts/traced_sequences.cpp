#include "experts/traced_sequences.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "base/error.h"

namespace klotski {

namespace {

void append_trace(const std::filesystem::path& path, TracedSequences& all) {
  RoutingTraceReader reader(path);
  if (all.shape.layers.empty()) all.shape = reader.shape();
  if (reader.shape().layers != all.shape.layers) {
    fail(ErrorKind::usage,
         "{}: expected the routed layers of the traces before ({}), found others ({}); traces of "
         "one model are trained with at a time",
         path_in_quotes(path), in_quotes(all.shape.model), in_quotes(reader.shape().model));
  }
  struct Growing {
    size_t index;  // in `all`
    uint32_t next_position;
  };
  std::unordered_map<uint32_t, Growing> growing;  // by the number of a sequence in this file
  for (RoutingRecord record; reader.next(record);) {
    const auto [found, fresh] =
        growing.try_emplace(record.sequence, Growing{all.sequences.size(), record.position});
    if (fresh) all.sequences.emplace_back();
    if (record.position != found->second.next_position) {
      fail(ErrorKind::bad_model, "{}: sequence {}: expected position {}, found {}",
           path_in_quotes(path), record.sequence, found->second.next_position, record.position);
    }
    ++found->second.next_position;
    TracedSequence& sequence = all.sequences[found->second.index];
    sequence.tokens.push_back(record.token);
    for (const ExpertId expert : record.choices) {
      sequence.choices.push_back(static_cast<uint16_t>(expert.value));
    }
  }
}

}  // namespace

int64_t TracedSequences::tokens() const {
  int64_t sum = 0;
  for (const TracedSequence& sequence : sequences) sum += std::ssize(sequence.tokens);
  return sum;
}

std::span<const uint16_t> TracedSequences::choices(const TracedSequence& sequence, size_t token,
                                                   size_t routed_layer) const {
  auto first = token * static_cast<size_t>(shape.choices_per_token());
  for (size_t i = 0; i < routed_layer; ++i) first += static_cast<size_t>(shape.layers[i].top_k);
  return std::span(sequence.choices)
      .subspan(first, static_cast<size_t>(shape.layers[routed_layer].top_k));
}

std::vector<double> TracedSequences::shares() const {
  std::vector<double> all;
  const double share = 1.0 / static_cast<double>(std::max<int64_t>(1, tokens()));
  for (size_t layer = 0; layer < shape.layers.size(); ++layer) {
    const size_t first = all.size();
    all.resize(first + static_cast<size_t>(shape.layers[layer].experts));
    for (const TracedSequence& sequence : sequences) {
      for (size_t t = 0; t < sequence.tokens.size(); ++t) {
        for (const uint16_t expert : choices(sequence, t, layer)) all[first + expert] += share;
      }
    }
  }
  return all;
}

TracedSequences read_traces(std::span<const std::filesystem::path> paths) {
  TracedSequences all;
  for (const std::filesystem::path& path : paths) append_trace(path, all);
  return all;
}

SplitSequences hold_out(TracedSequences all, double share) {
  const int64_t count = std::ssize(all.sequences);
  if (count < 2) {
    fail(ErrorKind::usage,
         "the traces have {} sequences, expected at least 2: one to train with and one to judge "
         "with; trace more text, or cut it into shorter sequences (--sequence-tokens)",
         count);
  }
  const int64_t wanted = std::llround(share * static_cast<double>(count));
  const int64_t kept = std::clamp<int64_t>(wanted, 1, count - 1);
  SplitSequences split{.training = {all.shape}, .held_out = {all.shape}};
  for (int64_t i = 0; i < count; ++i) {
    const bool held = (i + 1) * kept / count != i * kept / count;
    TracedSequence& sequence = all.sequences[static_cast<size_t>(i)];
    (held ? split.held_out : split.training).sequences.push_back(std::move(sequence));
  }
  return split;
}

}  // namespace klotski
