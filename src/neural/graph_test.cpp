#include "neural/graph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

namespace klotski::neural {
namespace {

Parameter random_parameter(const char* name, int64_t rows, int64_t columns, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Parameter parameter(name, rows, columns);
  for (float& value : parameter.value.values) value = normal(random);
  parameter.gradient = Matrix(rows, columns);
  return parameter;
}

Matrix targets_of(const Matrix& like, unsigned seed) {
  std::mt19937 random(seed);
  Matrix targets(like.rows, like.columns);
  for (float& value : targets.values) value = static_cast<float>(random() % 2);
  return targets;
}

constexpr int32_t kAllRows[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};

// A node with all values of a parameter, so that the gradient of any operation shows there.
Node node_of(Graph& graph, Parameter& parameter) {
  return graph.embed(parameter,
                     std::span(kAllRows).first(static_cast<size_t>(parameter.value.rows)));
}

using Network = std::function<Node(Graph&)>;

double loss_of(const Network& network, Graph& graph) {
  const Node logits = network(graph);
  return graph.binary_cross_entropy(logits, targets_of(graph.value(logits), 7));
}

// Compares every element of the parameters' gradients with a central difference of the loss.
void check_gradients(const Network& network, const std::vector<Parameter*>& parameters) {
  for (Parameter* parameter : parameters) {
    std::fill(parameter->gradient.values.begin(), parameter->gradient.values.end(), 0.0f);
  }
  Graph graph(Graph::Mode::train);
  loss_of(network, graph);
  graph.backward();
  constexpr float kStep = 2e-3f;
  for (Parameter* parameter : parameters) {
    for (size_t i = 0; i < parameter->value.values.size(); ++i) {
      float& value = parameter->value.values[i];
      const float kept = value;
      const auto loss_at = [&](float moved) {
        value = moved;
        Graph at(Graph::Mode::run);
        return loss_of(network, at);
      };
      const double difference = loss_at(kept + kStep) - loss_at(kept - kStep);
      value = kept;
      EXPECT_NEAR(parameter->gradient.values[i], difference / (2 * kStep), 4e-4)
          << parameter->name << '[' << i << ']';
    }
  }
}

TEST(GraphGradient, EmbedCountsRowsTakenTwice) {
  Parameter table = random_parameter("table", 4, 3, 1);
  constexpr int32_t kRows[] = {2, 0, 2, 3};
  check_gradients([&](Graph& graph) { return graph.embed(table, kRows); }, {&table});
  EXPECT_EQ(table.gradient.row(1)[0], 0);  // a row nobody took
}

TEST(GraphGradient, Linear) {
  for (const int64_t rows : {2, 9}) {  // dot products and tiles
    Parameter in = random_parameter("in", rows, 5, 1);
    Parameter weight = random_parameter("weight", 18, 5, 2);
    Parameter bias = random_parameter("bias", 1, 18, 3);
    check_gradients([&](Graph& graph) { return graph.linear(node_of(graph, in), weight, bias); },
                    {&in, &weight, &bias});
  }
}

TEST(GraphGradient, AddOfOneNodeTwice) {
  Parameter a = random_parameter("a", 3, 4, 1);
  Parameter b = random_parameter("b", 3, 4, 2);
  check_gradients(
      [&](Graph& graph) {
        const Node sum = graph.add(node_of(graph, a), node_of(graph, b));
        return graph.add(sum, sum);
      },
      {&a, &b});
}

TEST(GraphGradient, Normalise) {
  Parameter in = random_parameter("in", 3, 6, 1);
  Parameter gain = random_parameter("gain", 1, 6, 2);
  check_gradients([&](Graph& graph) { return graph.normalise(node_of(graph, in), gain); },
                  {&in, &gain});
}

TEST(GraphGradient, Relu) {
  Parameter in = random_parameter("in", 4, 5, 1);
  for (float& value : in.value.values) value += value > 0 ? 0.1f : -0.1f;  // off the kink
  check_gradients([&](Graph& graph) { return graph.relu(node_of(graph, in)); }, {&in});
}

TEST(GraphGradient, AttendToAllInBlocks) {
  Parameter queries = random_parameter("queries", 5, 4, 1);
  Parameter keys = random_parameter("keys", 7, 4, 2);
  Parameter values = random_parameter("values", 7, 4, 3);
  check_gradients(
      [&](Graph& graph) {
        return graph.attend(node_of(graph, queries), node_of(graph, keys), node_of(graph, values),
                            {.heads = 2, .blocks = {{0, 2, 0, 4}, {2, 3, 4, 3}}});
      },
      {&queries, &keys, &values});
}

TEST(GraphGradient, AttendCausally) {
  Parameter queries = random_parameter("queries", 3, 4, 1);
  Parameter keys = random_parameter("keys", 5, 4, 2);
  Parameter values = random_parameter("values", 5, 4, 3);
  check_gradients(
      [&](Graph& graph) {
        return graph.attend(node_of(graph, queries), node_of(graph, keys), node_of(graph, values),
                            {.heads = 1, .causal = true, .blocks = {{0, 3, 0, 5}}});
      },
      {&queries, &keys, &values});
}

TEST(GraphGradient, SeveralLossesAddUp) {
  Parameter in = random_parameter("in", 2, 2, 1);
  Graph one(Graph::Mode::train);
  const Node logits = node_of(one, in);
  one.binary_cross_entropy(logits, targets_of(in.value, 7));
  one.backward();
  const Matrix once = std::exchange(in.gradient, Matrix(2, 2));
  Graph two(Graph::Mode::train);
  const Node again = node_of(two, in);
  two.binary_cross_entropy(again, targets_of(in.value, 7));
  two.binary_cross_entropy(again, targets_of(in.value, 7));
  two.backward();
  for (size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(in.gradient.values[i], 2 * once.values[i]);
}

TEST(Graph, CausalQueriesSeeTheKeysUpToTheirOwn) {
  // One key at a time: shares of the keys are exp(q k), normalised over those seen.
  Graph graph(Graph::Mode::run);
  const auto column = [](std::vector<float> values) {
    Matrix matrix(std::ssize(values), 1);
    matrix.values = std::move(values);
    return matrix;
  };
  const Node out = graph.attend(graph.constant(column({1, 1})), graph.constant(column({0, 0, 0})),
                                graph.constant(column({3, 6, 30})),
                                {.heads = 1, .causal = true, .blocks = {{0, 2, 0, 3}}});
  EXPECT_FLOAT_EQ(graph.value(out).values[0], 4.5f);   // the mean of 3 and 6
  EXPECT_FLOAT_EQ(graph.value(out).values[1], 13.0f);  // and of all three
}

TEST(Graph, CrossEntropyByHandAndFarFromZero) {
  Graph graph(Graph::Mode::run);
  Matrix logits(1, 4);
  logits.values = {0, 0, 1000, -1000};
  Matrix targets(1, 4);
  targets.values = {1, 0, 1, 1};
  // ln 2 twice, nothing for the third, 1000 for the fourth.
  EXPECT_NEAR(graph.binary_cross_entropy(graph.constant(logits), targets),
              (2 * std::log(2.0) + 1000) / 4, 1e-4);
}

TEST(Graph, RunningTouchesNoGradient) {
  Parameter in = random_parameter("in", 2, 2, 1);
  in.gradient = {};
  Graph graph(Graph::Mode::run);
  graph.binary_cross_entropy(graph.relu(node_of(graph, in)), Matrix(2, 2));
  graph.backward();
  EXPECT_TRUE(in.gradient.values.empty());
}

}  // namespace
}  // namespace klotski::neural
