#include "experts/path_network.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/noise.h"

namespace klotski {

using neural::AttendBlock;
using neural::Graph;
using neural::Matrix;
using neural::Node;
using neural::Parameter;

namespace {

constexpr int32_t kUnknownRow = 0;
constexpr int32_t kBeginRow = 1;
constexpr int32_t kSpecialRows = 2;

void append_rows(Matrix& to, const Matrix& rows) {
  to.columns = rows.columns;
  to.rows += rows.rows;
  to.values.insert(to.values.end(), rows.values.begin(), rows.values.end());
}

Parameter ones(const std::string& name, int64_t columns) {
  Parameter gain(name, 1, columns);
  std::fill(gain.value.values.begin(), gain.value.values.end(), 1.0f);
  return gain;
}

double log_odds(double share) {
  constexpr double kLeast = 1e-4;  // an expert nobody chose may still be chosen
  const double kept = std::clamp(share, kLeast, 1 - kLeast);
  return std::log(kept / (1 - kept));
}

}  // namespace

// Input of the decoder: a batch of tokens, or the last tokens of a sequence.
struct PathNetwork::DecoderInput {
  Node tokens{};   // embedded
  Node queries{};  // normalised
  KeysAndValues chunk{};
  KeysAndValues context{};
  std::vector<AttendBlock> chunk_blocks{};
  std::vector<AttendBlock> context_blocks{};
};

int64_t PathNetworkShape::first_expert(size_t routed_layer) const {
  int64_t sum = 0;
  for (size_t i = 0; i < routed_layer; ++i) sum += routing.layers[i].experts;
  return sum;
}

int64_t PathNetworkShape::parameters() const {
  const int64_t attention = width + 4 * (width + 1) * width;
  const int64_t feed_forward = width + (width + 1) * inner + (inner + 1) * width;
  const int64_t embedding = (std::ssize(known_tokens) + kSpecialRows + chunk) * width;
  return embedding + 3 * attention + 2 * feed_forward + width + (width + 1) * experts();
}

PathNetwork::Linear::Linear(const std::string& name, int64_t out, int64_t in)
    : weight(name, out, in), bias(name + ".bias", 1, out) {}

PathNetwork::AttentionPart::AttentionPart(const std::string& name, int64_t width)
    : norm(ones(name + ".norm", width)),
      query(name + ".query", width, width),
      key(name + ".key", width, width),
      value(name + ".value", width, width),
      output(name + ".output", width, width) {}

PathNetwork::FeedForwardPart::FeedForwardPart(const std::string& name, int64_t width, int64_t inner)
    : norm(ones(name + ".norm", width)),
      up(name + ".up", inner, width),
      down(name + ".down", width, inner) {}

PathNetwork::PathNetwork(PathNetworkShape shape)
    : shape_(std::move(shape)),
      tokens_("tokens", std::ssize(shape_.known_tokens) + kSpecialRows, shape_.width),
      positions_("positions", shape_.chunk, shape_.width),
      encoder_("encoder", shape_.width),
      encoder_feed_("encoder.feed", shape_.width, shape_.inner),
      decoder_("decoder", shape_.width),
      cross_("cross", shape_.width),
      decoder_feed_("decoder.feed", shape_.width, shape_.inner),
      last_norm_(ones("norm", shape_.width)),
      heads_("heads", shape_.experts(), shape_.width) {}

template <typename Network, typename List>
void PathNetwork::list_parameters(Network& network, List& list) {
  const auto add_linear = [&](auto& part) {
    list.push_back(&part.weight);
    list.push_back(&part.bias);
  };
  const auto add_attention = [&](auto& part) {
    list.push_back(&part.norm);
    for (auto* linear : {&part.query, &part.key, &part.value, &part.output}) add_linear(*linear);
  };
  const auto add_feed_forward = [&](auto& part) {
    list.push_back(&part.norm);
    add_linear(part.up);
    add_linear(part.down);
  };
  list.push_back(&network.tokens_);
  list.push_back(&network.positions_);
  add_attention(network.encoder_);
  add_feed_forward(network.encoder_feed_);
  add_attention(network.decoder_);
  add_attention(network.cross_);
  add_feed_forward(network.decoder_feed_);
  list.push_back(&network.last_norm_);
  add_linear(network.heads_);
}

std::vector<Parameter*> PathNetwork::parameters() {
  std::vector<Parameter*> list;
  list_parameters(*this, list);
  return list;
}

std::vector<const Parameter*> PathNetwork::parameters() const {
  std::vector<const Parameter*> list;
  list_parameters(*this, list);
  return list;
}

void PathNetwork::initialise(uint64_t seed, std::span<const double> shares) {
  const auto randomise = [&](Parameter& parameter) {
    const uint64_t key = noise_key(seed, parameter.name);
    const double scale =
        1 / (std::sqrt(static_cast<double>(parameter.value.columns)) * noise_deviation());
    for (size_t i = 0; i < parameter.value.values.size(); ++i) {
      parameter.value.values[i] = static_cast<float>(scale * noise(key, i));
    }
  };
  randomise(tokens_);
  randomise(positions_);
  for (AttentionPart* part : {&encoder_, &decoder_, &cross_}) {
    for (Linear* linear : {&part->query, &part->key, &part->value}) randomise(linear->weight);
  }
  for (FeedForwardPart* part : {&encoder_feed_, &decoder_feed_}) randomise(part->up.weight);
  for (size_t i = 0; i < shares.size(); ++i) {
    heads_.bias.value.values[i] = static_cast<float>(log_odds(shares[i]));
  }
}

int32_t PathNetwork::row_of(TokenId token) const {
  const std::vector<TokenId>& known = shape_.known_tokens;
  const auto found = std::lower_bound(known.begin(), known.end(), token);
  if (found == known.end() || *found != token) return kUnknownRow;
  return static_cast<int32_t>(found - known.begin()) + kSpecialRows;
}

void PathNetwork::append_tokens(TokenRows& to, std::span<const TokenId> tokens,
                                int64_t first_place) const {
  for (const TokenId token : tokens) {
    to.rows.push_back(row_of(token));
    to.places.push_back(static_cast<int32_t>(first_place++));
  }
}

void PathNetwork::append_context(TokenRows& to, std::span<const TokenId> before) const {
  append_tokens(to, before, 0);
  if (!before.empty()) return;
  to.rows.push_back(kBeginRow);
  to.places.push_back(0);
}

Node PathNetwork::embed(Graph& graph, const TokenRows& tokens) {
  return graph.add(graph.embed(tokens_, tokens.rows), graph.embed(positions_, tokens.places));
}

Node PathNetwork::feed_forward(Graph& graph, Node x, FeedForwardPart& part) {
  const Node up = graph.linear(graph.normalise(x, part.norm), part.up.weight, part.up.bias);
  return graph.add(x, graph.linear(graph.relu(up), part.down.weight, part.down.bias));
}

// The keys and values under which the decoder finds the encoded chunks before.
PathNetwork::KeysAndValues PathNetwork::encode(Graph& graph, const TokenRows& context,
                                               std::span<const AttendBlock> blocks) {
  Node x = embed(graph, context);
  const Node normed = graph.normalise(x, encoder_.norm);
  const auto linear = [&](Node from, Linear& by) { return graph.linear(from, by.weight, by.bias); };
  const Node attended = graph.attend(
      linear(normed, encoder_.query), linear(normed, encoder_.key), linear(normed, encoder_.value),
      {.heads = shape_.heads, .blocks = {blocks.begin(), blocks.end()}});
  x = graph.add(x, linear(attended, encoder_.output));
  x = feed_forward(graph, x, encoder_feed_);
  return {linear(x, cross_.key), linear(x, cross_.value)};
}

Node PathNetwork::decode(Graph& graph, const DecoderInput& input) {
  const auto linear = [&](Node from, Linear& by) { return graph.linear(from, by.weight, by.bias); };
  const Node attended =
      graph.attend(linear(input.queries, decoder_.query), input.chunk.keys, input.chunk.values,
                   {.heads = shape_.heads, .causal = true, .blocks = input.chunk_blocks});
  Node x = graph.add(input.tokens, linear(attended, decoder_.output));
  const Node crossed =
      graph.attend(linear(graph.normalise(x, cross_.norm), cross_.query), input.context.keys,
                   input.context.values, {.heads = shape_.heads, .blocks = input.context_blocks});
  x = graph.add(x, linear(crossed, cross_.output));
  return linear(graph.normalise(feed_forward(graph, x, decoder_feed_), last_norm_), heads_);
}

Node PathNetwork::logits(Graph& graph, std::span<const PathChunk> chunks) {
  TokenRows context;
  TokenRows tokens;
  std::vector<AttendBlock> encoder_blocks;
  DecoderInput input;
  for (const PathChunk& chunk : chunks) {
    AttendBlock own{.first_query = std::ssize(tokens.rows), .queries = std::ssize(chunk.tokens)};
    own.first_key = own.first_query;
    own.keys = own.queries;
    const int64_t first = std::ssize(context.rows);
    append_tokens(tokens, chunk.tokens, 0);
    append_context(context, chunk.before);
    const int64_t count = std::ssize(context.rows) - first;
    encoder_blocks.push_back({first, count, first, count});
    input.chunk_blocks.push_back(own);
    input.context_blocks.push_back({own.first_query, own.queries, first, count});
  }
  input.context = encode(graph, context, encoder_blocks);
  input.tokens = embed(graph, tokens);
  input.queries = graph.normalise(input.tokens, decoder_.norm);
  input.chunk = {graph.linear(input.queries, decoder_.key.weight, decoder_.key.bias),
                 graph.linear(input.queries, decoder_.value.weight, decoder_.value.bias)};
  return decode(graph, input);
}

void PathNetwork::begin_chunk(PathState& state) {
  Graph graph(Graph::Mode::run);
  TokenRows context;
  append_context(context, state.chunk);
  const int64_t count = std::ssize(context.rows);
  const AttendBlock all[] = {{0, count, 0, count}};
  const KeysAndValues encoded = encode(graph, context, all);
  state = {.context_keys = graph.value(encoded.keys),
           .context_values = graph.value(encoded.values)};
}

// Tokens that end within the chunk at hand.
Matrix PathNetwork::extend_chunk(PathState& state, std::span<const TokenId> tokens) {
  Graph graph(Graph::Mode::run);
  TokenRows rows;
  append_tokens(rows, tokens, std::ssize(state.chunk));
  DecoderInput input{.tokens = embed(graph, rows)};
  input.queries = graph.normalise(input.tokens, decoder_.norm);
  const auto value = [&](Linear& by) -> const Matrix& {
    return graph.value(graph.linear(input.queries, by.weight, by.bias));
  };
  append_rows(state.keys, value(decoder_.key));
  append_rows(state.values, value(decoder_.value));
  state.chunk.insert(state.chunk.end(), tokens.begin(), tokens.end());
  input.chunk = {graph.constant(state.keys), graph.constant(state.values)};
  input.context = {graph.constant(state.context_keys), graph.constant(state.context_values)};
  const int64_t count = std::ssize(tokens);
  input.chunk_blocks = {{0, count, 0, state.keys.rows}};
  input.context_blocks = {{0, count, 0, state.context_keys.rows}};
  return graph.value(decode(graph, input));
}

Matrix PathNetwork::extend(PathState& state, std::span<const TokenId> tokens) {
  Matrix probabilities(0, shape_.experts());
  while (!tokens.empty()) {
    if (state.context_keys.rows == 0 || std::ssize(state.chunk) == shape_.chunk) begin_chunk(state);
    const auto room = static_cast<size_t>(shape_.chunk - std::ssize(state.chunk));
    const auto piece = tokens.first(std::min(room, tokens.size()));
    append_rows(probabilities, extend_chunk(state, piece));
    tokens = tokens.subspan(piece.size());
  }
  // Weights of any size may come from a file: a logit that is no number speaks for nothing.
  for (float& value : probabilities.values) {
    value = std::isnan(value) ? 0.0f : 1 / (1 + std::exp(-value));
  }
  return probabilities;
}

}  // namespace klotski
