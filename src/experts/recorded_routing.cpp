#include "experts/recorded_routing.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace klotski {

namespace {

TracedSequence cut(const TracedSequence& sequence, size_t first, size_t tokens) {
  const size_t choices = sequence.choices.size() / sequence.tokens.size();  // of a token
  const auto at = [](size_t place) { return static_cast<std::ptrdiff_t>(place); };
  return {{sequence.tokens.begin() + at(first), sequence.tokens.begin() + at(first + tokens)},
          {sequence.choices.begin() + at(first * choices),
           sequence.choices.begin() + at((first + tokens) * choices)}};
}

}  // namespace

TracedSequences read_stretches(std::span<const std::filesystem::path> traces,
                               const RoutingTraceShape& shape, int64_t tokens) {
  const TracedSequences whole = read_traces(traces);
  if (whole.shape.layers != shape.layers) {
    fail(ErrorKind::bad_model,
         "{}: expected the choices of {} routed layers as the model's, found {} other ones (of "
         "{}); record a trace of a model with this routing shape",
         path_in_quotes(traces.front()), shape.layers.size(), whole.shape.layers.size(),
         in_quotes(whole.shape.model));
  }
  const auto length = static_cast<size_t>(tokens);
  TracedSequences stretches{.shape = whole.shape};
  size_t longest = 0;
  for (const TracedSequence& sequence : whole.sequences) {
    longest = std::max(longest, sequence.tokens.size());
    for (size_t first = 0; first + length <= sequence.tokens.size(); first += length) {
      stretches.sequences.push_back(cut(sequence, first, length));
    }
  }
  if (stretches.sequences.empty()) {
    fail(ErrorKind::usage,
         "recorded routing: expected sequences of at least {} tokens, found none longer than {}; "
         "ask for fewer tokens or record longer sequences",
         tokens, longest);
  }
  return stretches;
}

RecordedRouting::RecordedRouting(TracedSequences stretches) : stretches_(std::move(stretches)) {
  const std::vector<RoutedLayer>& layers = stretches_.shape.layers;
  for (size_t i = 0; i < layers.size(); ++i) {
    routed_index_.resize(static_cast<size_t>(layers[i].layer.value) + 1, i);
  }
}

const TracedSequence& RecordedRouting::stretch(int64_t sequence) const {
  return stretches_.sequences[static_cast<size_t>(sequence) % stretches_.sequences.size()];
}

std::span<const uint16_t> RecordedRouting::choices(int64_t sequence, int64_t position,
                                                   LayerId layer) const {
  const TracedSequence& here = stretch(sequence);
  if (position >= std::ssize(here.tokens)) {
    fail(ErrorKind::internal, "recorded routing has {} tokens of sequence {}, not token {}",
         here.tokens.size(), sequence, position);
  }
  return stretches_.choices(here, static_cast<size_t>(position),
                            routed_index_[static_cast<size_t>(layer.value)]);
}

}  // namespace klotski
