#include "experts/recorded_routing.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"

namespace klotski {

namespace {

// A sequence of a trace as it is read, token by token.
struct GrowingSequence {
  uint32_t next_position = 0;
  RecordedStretch whole;
};

std::vector<RecordedStretch> sequences_of(const std::filesystem::path& trace,
                                          const RoutingTraceShape& shape) {
  RoutingTraceReader reader(trace);
  if (reader.shape().layers != shape.layers) {
    fail(ErrorKind::bad_model,
         "{}: expected the choices of {} routed layers as the model's, found {} other ones (of "
         "{}); record a trace of a model with this routing shape",
         path_in_quotes(trace), shape.layers.size(), reader.shape().layers.size(),
         in_quotes(reader.shape().model));
  }
  std::map<uint32_t, size_t> index;  // in `found`, by the sequence's number in the trace
  std::vector<GrowingSequence> found;
  for (RoutingRecord record; reader.next(record);) {
    const auto [entry, is_new] = index.try_emplace(record.sequence, found.size());
    if (is_new) found.push_back({record.position, {}});
    GrowingSequence& sequence = found[entry->second];
    if (record.position != sequence.next_position) {
      fail(ErrorKind::bad_model, "{}: sequence {}: expected position {}, found {}",
           path_in_quotes(trace), record.sequence, sequence.next_position, record.position);
    }
    ++sequence.next_position;
    sequence.whole.tokens.push_back(record.token);
    sequence.whole.choices.insert(sequence.whole.choices.end(), record.choices.begin(),
                                  record.choices.end());
  }
  std::vector<RecordedStretch> sequences;
  for (GrowingSequence& sequence : found) sequences.push_back(std::move(sequence.whole));
  return sequences;
}

RecordedStretch cut(const RecordedStretch& sequence, size_t first, size_t tokens) {
  const size_t choices = sequence.choices.size() / sequence.tokens.size();  // of a token
  const auto at = [](size_t place) { return static_cast<std::ptrdiff_t>(place); };
  return {{sequence.tokens.begin() + at(first), sequence.tokens.begin() + at(first + tokens)},
          {sequence.choices.begin() + at(first * choices),
           sequence.choices.begin() + at((first + tokens) * choices)}};
}

}  // namespace

std::vector<RecordedStretch> read_stretches(const std::vector<std::filesystem::path>& traces,
                                            const RoutingTraceShape& shape, int64_t tokens) {
  const auto length = static_cast<size_t>(tokens);
  std::vector<RecordedStretch> stretches;
  size_t longest = 0;
  for (const std::filesystem::path& trace : traces) {
    for (const RecordedStretch& sequence : sequences_of(trace, shape)) {
      longest = std::max(longest, sequence.tokens.size());
      for (size_t first = 0; first + length <= sequence.tokens.size(); first += length) {
        stretches.push_back(cut(sequence, first, length));
      }
    }
  }
  if (stretches.empty()) {
    fail(ErrorKind::usage,
         "recorded routing: expected sequences of at least {} tokens, found none longer than {}; "
         "ask for fewer tokens or record longer sequences",
         tokens, longest);
  }
  return stretches;
}

RecordedRouting::RecordedRouting(const RoutingTraceShape& shape,
                                 std::vector<RecordedStretch> stretches)
    : choices_per_token_(static_cast<size_t>(shape.choices_per_token())),
      stretches_(std::move(stretches)) {
  size_t first = 0;
  for (const RoutedLayer& routed : shape.layers) {
    const auto top_k = static_cast<size_t>(routed.top_k);
    layers_.resize(static_cast<size_t>(routed.layer.value) + 1);
    layers_.back() = {first, top_k};
    first += top_k;
  }
}

const RecordedStretch& RecordedRouting::stretch(int64_t sequence) const {
  return stretches_[static_cast<size_t>(sequence) % stretches_.size()];
}

std::span<const ExpertId> RecordedRouting::choices(int64_t sequence, int64_t position,
                                                   LayerId layer) const {
  const RecordedStretch& here = stretch(sequence);
  if (position >= std::ssize(here.tokens)) {
    fail(ErrorKind::internal, "recorded routing has {} tokens of sequence {}, not token {}",
         here.tokens.size(), sequence, position);
  }
  const LayerPlace& place = layers_[static_cast<size_t>(layer.value)];
  return std::span(here.choices)
      .subspan(static_cast<size_t>(position) * choices_per_token_ + place.first, place.top_k);
}

}  // namespace klotski
