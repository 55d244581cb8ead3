#pragma once

// The routing-path predictor of ExpertFlow (section 3.1): a small encoder-decoder that reads tokens
// and gives, for every routed layer of the model at once, the probability that a token chooses each
// expert. It needs nothing of the model's own computation, so that the experts of all layers are
// predicted before the first layer runs.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "experts/routing_trace.h"
#include "neural/graph.h"

namespace klotski {

struct PathNetworkShape {
  RoutingTraceShape routing;
  int64_t width = 64;   // columns of a token's vector
  int64_t heads = 4;    // of each attention
  int64_t inner = 128;  // width of the feed-forward parts
  // Tokens of a chunk. The encoder reads the chunk before, the decoder the chunk at hand, so that
  // the cost of a token does not grow with its sequence.
  int64_t chunk = 32;
  // Tokens with a row of their own in the embedding, ascending. All others share one row.
  std::vector<TokenId> known_tokens{};

  // Experts of all routed layers: the columns of a prediction. A layer's begin at first_expert().
  int64_t experts() const { return routing.experts(); }
  int64_t first_expert(size_t routed_layer) const;
  int64_t parameters() const;  // numbers that training finds

  bool operator==(const PathNetworkShape&) const = default;
};

// Throws where the shape is beyond the limits of the file format; `what` begins the message.
void check_shape(const PathNetworkShape& shape, const std::string& what);

// Tokens to predict: those of one chunk, with the whole chunk before it; nothing is before the
// first chunk of a sequence.
struct PathChunk {
  std::span<const TokenId> before;
  std::span<const TokenId> tokens;
};

// State of a sequence that grows: the chunk before, encoded, and the decoder's keys and values of
// the chunk at hand. A copy is a sequence that goes on elsewhere.
struct PathState {
  neural::Matrix context_keys{};
  neural::Matrix context_values{};
  neural::Matrix keys{};
  neural::Matrix values{};
  std::vector<TokenId> chunk{};  // tokens of the chunk at hand
};

class PathNetwork {
 public:
  // All weights zero.
  explicit PathNetwork(PathNetworkShape shape);

  // Weights to begin a training with, the same on every machine. Parts that add to a token's vector
  // begin with nothing, heads with the experts' popularity: `shares` has, for every expert of all
  // routed layers, the share of the tokens that choose it.
  void initialise(uint64_t seed, std::span<const double> shares);

  const PathNetworkShape& shape() const { return shape_; }
  // In the order of the file format.
  std::vector<neural::Parameter*> parameters();
  std::vector<const neural::Parameter*> parameters() const;

  // Logits [tokens of all chunks][experts of all routed layers].
  neural::Node logits(neural::Graph& graph, std::span<const PathChunk> chunks);

  // Reads the next tokens of a sequence: the probability of each expert, [tokens][experts of all
  // routed layers].
  neural::Matrix extend(PathState& state, std::span<const TokenId> tokens);

  // The file format of docs/path-predictor.md.
  std::string bytes() const;
  static PathNetwork parse(std::span<const std::byte> bytes, const std::string& what);
  void save(const std::filesystem::path& path) const;
  // Throws where the file is damaged or not about `routing` (the model's name may differ).
  static PathNetwork load(const std::filesystem::path& path, const RoutingTraceShape& routing);

 private:
  struct Linear {
    Linear(const std::string& name, int64_t out, int64_t in);
    neural::Parameter weight;
    neural::Parameter bias;
  };
  struct AttentionPart {
    AttentionPart(const std::string& name, int64_t width);
    neural::Parameter norm;
    Linear query, key, value, output;
  };
  struct FeedForwardPart {
    FeedForwardPart(const std::string& name, int64_t width, int64_t inner);
    neural::Parameter norm;
    Linear up, down;
  };
  // Rows of the embedding, with the place of each in its chunk.
  struct TokenRows {
    std::vector<int32_t> rows{};
    std::vector<int32_t> places{};
  };
  struct KeysAndValues {
    neural::Node keys;
    neural::Node values;
  };
  struct DecoderInput;

  template <typename Network, typename List>
  static void list_parameters(Network& network, List& list);
  int32_t row_of(TokenId token) const;
  void append_tokens(TokenRows& to, std::span<const TokenId> tokens, int64_t first_place) const;
  void append_context(TokenRows& to, std::span<const TokenId> before) const;
  neural::Node embed(neural::Graph& graph, const TokenRows& tokens);
  neural::Node feed_forward(neural::Graph& graph, neural::Node x, FeedForwardPart& part);
  KeysAndValues encode(neural::Graph& graph, const TokenRows& context,
                       std::span<const neural::AttendBlock> blocks);
  neural::Node decode(neural::Graph& graph, const DecoderInput& input);
  void begin_chunk(PathState& state);
  neural::Matrix extend_chunk(PathState& state, std::span<const TokenId> tokens);

  PathNetworkShape shape_;
  // Row 0: tokens that are not known; row 1: the beginning of a sequence, for the encoder.
  neural::Parameter tokens_;
  neural::Parameter positions_;  // [chunk][width]
  AttentionPart encoder_;
  FeedForwardPart encoder_feed_;
  AttentionPart decoder_;
  AttentionPart cross_;  // from the decoder to the encoded chunk
  FeedForwardPart decoder_feed_;
  neural::Parameter last_norm_;
  Linear heads_;  // of all routed layers, one after the other
};

}  // namespace klotski
