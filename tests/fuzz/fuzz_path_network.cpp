// The bytes are a routing-path predictor. What is accepted must come back the same when written
// again, and must predict: tokens it knows and others, across a chunk's end.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "experts/path_network.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_prediction(klotski::PathNetwork& network) {
  klotski::PathState state;
  std::vector<klotski::TokenId> tokens = network.shape().known_tokens;
  tokens.resize(static_cast<size_t>(std::min<int64_t>(network.shape().chunk, 8) + 1), -1);
  const klotski::neural::Matrix probabilities = network.extend(state, tokens);
  require(probabilities.rows == std::ssize(tokens));
  require(probabilities.columns == network.shape().experts());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using klotski::PathNetwork;
  try {
    PathNetwork network = PathNetwork::parse(std::as_bytes(std::span(data, size)), "fuzz");
    const std::string bytes = network.bytes();
    const PathNetwork again = PathNetwork::parse(std::as_bytes(std::span(bytes)), "again");
    require(again.shape() == network.shape() && again.bytes() == bytes);
    check_prediction(network);
  } catch (const klotski::Error& error) {
    require(error.kind() == klotski::ErrorKind::bad_model);
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
