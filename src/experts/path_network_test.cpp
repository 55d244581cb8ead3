#include "experts/path_network.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <numeric>

#include "base/file.h"
#include "base/noise.h"
#include "base/testing.h"

namespace klotski {
namespace {

using neural::Graph;
using neural::Matrix;
using neural::Parameter;

PathNetworkShape small_network_shape() {
  return {.routing = {"small", {{LayerId(1), 5, 2}, {LayerId(2), 3, 1}}},
          .width = 8,
          .heads = 2,
          .inner = 12,
          .chunk = 4,
          .known_tokens = {3, 5, 8, 13, 21, 34}};
}

// Weights without a zero, as tools/path_reference.py makes them.
PathNetwork filled_network(const PathNetworkShape& shape) {
  PathNetwork network(shape);
  for (Parameter* parameter : network.parameters()) {
    const uint64_t key = noise_key(7, parameter->name);
    const bool gain = parameter->name.ends_with("norm");
    for (size_t i = 0; i < parameter->value.values.size(); ++i) {
      const double value = noise(key, i) / noise_deviation();
      parameter->value.values[i] = static_cast<float>(gain ? 1 + 0.1 * value : 0.4 * value);
    }
  }
  return network;
}

std::string parsing_refused(const std::string& bytes) {
  return refusal([&] { PathNetwork::parse(std::as_bytes(std::span(bytes)), "predictor"); });
}

TEST(PathNetwork, CountsItsParameters) {
  const PathNetwork network(small_network_shape());
  int64_t sum = 0;
  for (const Parameter* parameter : network.parameters()) {
    sum += std::ssize(parameter->value.values);
  }
  EXPECT_EQ(network.shape().parameters(), sum);
  EXPECT_EQ(network.shape().experts(), 8);
  EXPECT_EQ(network.shape().first_expert(1), 5);
}

TEST(PathNetwork, BeginsWithPopularity) {
  PathNetwork network(small_network_shape());
  const std::vector<double> shares = {0.9, 0.5, 0.3, 0.2, 0.1, 0.7, 0.25, 0.0};
  network.initialise(1, shares);
  PathState state;
  const std::vector<TokenId> tokens = {3, 99, 8};
  const Matrix probabilities = network.extend(state, tokens);
  for (int64_t i = 0; i < 3; ++i) {
    for (size_t e = 0; e < 7; ++e) EXPECT_NEAR(probabilities.row(i)[e], shares[e], 1e-5);
    EXPECT_NEAR(probabilities.row(i)[7], 1e-4, 1e-6);  // never certain
  }
}

// One forward and backward pass computed by PyTorch (tools/path_reference.py --golden).
TEST(PathNetwork, LossAndGradientsAreThoseOfPyTorch) {
  const std::string file = std::string(KLOTSKI_TEST_DATA) + "/predictor/golden.json";
  const Json golden = parse_json(read_text_file(file, 1 << 20), file);
  PathNetwork network = filled_network(small_network_shape());
  const auto parameters = network.parameters();
  for (Parameter* parameter : parameters) {
    parameter->gradient = Matrix(parameter->value.rows, parameter->value.columns);
  }
  std::vector<std::vector<TokenId>> tokens;
  std::vector<PathChunk> chunks;
  for (const Json& chunk : golden.at("chunks")) {
    for (const char* part : {"before", "tokens"}) tokens.push_back(chunk.at(part));
  }
  for (size_t i = 0; i < tokens.size(); i += 2) chunks.push_back({tokens[i], tokens[i + 1]});
  Graph graph(Graph::Mode::train);
  const neural::Node logits = network.logits(graph, chunks);
  const auto expected_logits = golden.at("logits").get<std::vector<std::vector<double>>>();
  Matrix targets(std::ssize(expected_logits), network.shape().experts());
  targets.values = golden.at("targets").get<std::vector<float>>();
  ASSERT_EQ(graph.value(logits).rows, targets.rows);
  for (int64_t i = 0; i < targets.rows; ++i) {
    for (int64_t e = 0; e < targets.columns; ++e) {
      EXPECT_NEAR(graph.value(logits).row(i)[e],
                  expected_logits[static_cast<size_t>(i)][static_cast<size_t>(e)], 1e-4);
    }
  }
  EXPECT_NEAR(graph.binary_cross_entropy(logits, targets), golden.at("loss").get<double>(), 1e-6);
  graph.backward();
  for (const Parameter* parameter : parameters) {
    const auto expected = golden.at("gradients").at(parameter->name).get<std::vector<double>>();
    ASSERT_EQ(expected.size(), parameter->gradient.values.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(parameter->gradient.values[i], expected[i], 1e-5) << parameter->name << i;
    }
  }
}

TEST(PathNetwork, PiecesOfASequenceGiveWhatWholeChunksGive) {
  PathNetwork network = filled_network(small_network_shape());
  const std::vector<TokenId> tokens = {3, 5, 99, 8, 13, 21, 3, 3, 34, 7, 5};
  Graph graph(Graph::Mode::run);
  const auto all = std::span(tokens);
  const PathChunk chunks[] = {
      {{}, all.first(4)}, {all.first(4), all.subspan(4, 4)}, {all.subspan(4, 4), all.subspan(8)}};
  const Matrix& logits = graph.value(network.logits(graph, chunks));
  for (const size_t piece : {1, 2, 3, 5, 11}) {
    PathState state;
    int64_t row = 0;
    for (size_t at = 0; at < tokens.size(); at += piece) {
      const auto some = all.subspan(at, std::min(piece, tokens.size() - at));
      const Matrix probabilities = network.extend(state, some);
      ASSERT_EQ(probabilities.rows, std::ssize(some));
      for (int64_t i = 0; i < probabilities.rows; ++i, ++row) {
        for (int64_t e = 0; e < 8; ++e) {
          EXPECT_NEAR(probabilities.row(i)[e], 1 / (1 + std::exp(-logits.row(row)[e])), 1e-5);
        }
      }
    }
  }
}

TEST(PathNetwork, ACopiedStateGoesOnByItself) {
  PathNetwork network = filled_network(small_network_shape());
  PathState state;
  const std::vector<TokenId> first = {3, 5};
  network.extend(state, first);
  PathState copy = state;
  const TokenId token = 8;
  const TokenId other = 21;
  network.extend(copy, std::span(&other, 1));
  const Matrix after = network.extend(state, std::span(&token, 1));
  PathState fresh;
  const std::vector<TokenId> whole = {3, 5, 8};
  const Matrix expected = network.extend(fresh, whole);
  for (int64_t e = 0; e < 8; ++e) EXPECT_NEAR(after.row(0)[e], expected.row(2)[e], 1e-6);
}

TEST(PathNetworkFile, ComesBack) {
  const PathNetwork network = filled_network(small_network_shape());
  const std::string bytes = network.bytes();
  const PathNetwork back = PathNetwork::parse(std::as_bytes(std::span(bytes)), "predictor");
  EXPECT_EQ(back.shape(), network.shape());
  EXPECT_EQ(back.bytes(), bytes);
}

TEST(PathNetworkFile, IsBoundToTheRoutedLayers) {
  const auto path = std::filesystem::path(testing::TempDir()) /
                    (std::to_string(::getpid()) + "_path_network_test.klpath");
  filled_network(small_network_shape()).save(path);
  RoutingTraceShape routing = small_network_shape().routing;
  routing.model = "another name";
  EXPECT_EQ(refusal([&] { PathNetwork::load(path, routing); }), "");
  routing.layers[1].experts = 4;
  EXPECT_NE(refusal([&] { PathNetwork::load(path, routing); }).find("trained for 'small'"),
            std::string::npos);
  std::filesystem::remove(path);
}

TEST(PathNetworkFile, EveryCutIsRefused) {
  const std::string bytes = filled_network(small_network_shape()).bytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(parsing_refused(bytes.substr(0, size)), "") << size;
  }
  EXPECT_NE(parsing_refused(bytes + "x").find("bytes after the header"), std::string::npos);
}

TEST(PathNetworkFile, HostileFilesAreRefusedBeforeMemoryIsTaken) {
  const auto with_header = [](const std::string& header) {
    std::string bytes = "KLPATH01";
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(header.size() >> (8 * i)));
    return bytes + header;
  };
  const auto header = [&](const std::string& layers, const std::string& rest) {
    return with_header(R"({"version":1,"model":"m","layers":)" + layers + "," + rest + "}");
  };
  const std::string one = R"([{"layer":0,"experts":4,"top_k":2}])";
  // Sizes that would take more than 2^40 bytes.
  const std::string large =
      R"("width":4096,"heads":1,"inner":16384,"chunk":4096,"known_tokens":16777216)";
  EXPECT_NE(parsing_refused(header(one, large)).find("bytes after the header"), std::string::npos);
  for (const char* rest : {
           R"("width":8,"heads":3,"inner":1,"chunk":1,"known_tokens":0)",
           R"("width":8,"heads":9,"inner":1,"chunk":1,"known_tokens":0)",
           R"("width":4097,"heads":1,"inner":1,"chunk":1,"known_tokens":0)",
           R"("width":8,"heads":1,"inner":0,"chunk":1,"known_tokens":0)",
           R"("width":8,"heads":1,"inner":1,"chunk":-1,"known_tokens":0)",
           R"("width":8,"heads":1,"inner":1,"chunk":1,"known_tokens":-1)",
           R"("width":8,"heads":1,"inner":1,"chunk":1)",
       }) {
    EXPECT_NE(parsing_refused(header(one, rest)), "") << rest;
  }
  EXPECT_NE(parsing_refused(header("[]", large)), "");
  EXPECT_NE(parsing_refused(std::string("KLPATH01\xFF\xFF\xFF\xFF", 12)).find("4294967295"),
            std::string::npos);
  std::string wrong = filled_network(small_network_shape()).bytes();
  wrong[7] = '2';
  EXPECT_NE(parsing_refused(wrong).find("KLPATH01"), std::string::npos);
}

TEST(PathNetworkFile, BadNumbersAreRefused) {
  PathNetworkShape shape = small_network_shape();
  shape.known_tokens[3] = shape.known_tokens[2];
  EXPECT_NE(parsing_refused(PathNetwork(shape).bytes()).find("rising order"), std::string::npos);
  PathNetwork network = filled_network(small_network_shape());
  network.parameters()[3]->value.values[1] = NAN;
  EXPECT_NE(parsing_refused(network.bytes()).find("finite"), std::string::npos);
}

}  // namespace
}  // namespace klotski
