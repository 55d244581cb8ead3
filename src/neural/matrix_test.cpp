#include "neural/matrix.h"

#include <gtest/gtest.h>

#include <random>

namespace klotski::neural {
namespace {

Matrix random_matrix(int64_t rows, int64_t columns, std::mt19937& random) {
  Matrix matrix(rows, columns);
  std::normal_distribution<float> normal;
  for (float& value : matrix.values) value = normal(random);
  return matrix;
}

// [n][m] of a [n][k] and b [k][m], as the definition has it.
double element(View<const float> a, View<const float> b, int64_t i, int64_t j) {
  double sum = 0;
  for (int64_t k = 0; k < a.columns; ++k) sum += double{a.at(i, k)} * double{b.at(k, j)};
  return sum;
}

TEST(Matrix, ProductsOfAllShapesAreTheDefinition) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const auto size = [&] { return 1 + static_cast<int64_t>(random() % 40); };
    const int64_t n = size();
    const int64_t m = size();
    const int64_t k = size();
    const bool turned_a = random() % 2 == 0;
    const bool turned_b = random() % 2 == 0;
    const Matrix a = turned_a ? random_matrix(k, n, random) : random_matrix(n, k, random);
    const Matrix b = turned_b ? random_matrix(m, k, random) : random_matrix(k, m, random);
    const auto a_view = turned_a ? view(a).transposed() : view(a);
    const auto b_view = turned_b ? view(b).transposed() : view(b);
    Matrix out(n, m);
    out.values.assign(out.values.size(), 1.0f);  // is added to
    add_product(view(out), a_view, b_view);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < m; ++j) {
        ASSERT_NEAR(out.row(i)[j], 1 + element(a_view, b_view, i, j), 1e-4);
      }
    }
  }
}

TEST(Matrix, ProductOfPartsLeavesTheRestAlone) {
  std::mt19937 random(2);
  const Matrix a = random_matrix(9, 12, random);
  const Matrix b = random_matrix(10, 40, random);
  Matrix out(20, 50);
  const auto a_part = view(a, {.first_row = 2, .rows = 6, .first_column = 3, .columns = 7});
  const auto b_part = view(b, {.first_row = 1, .rows = 7, .first_column = 5, .columns = 33});
  add_product(view(out, {.first_row = 4, .rows = 6, .first_column = 10, .columns = 33}), a_part,
              b_part);
  for (int64_t i = 0; i < out.rows; ++i) {
    for (int64_t j = 0; j < out.columns; ++j) {
      const bool inside = i >= 4 && i < 10 && j >= 10 && j < 43;
      const double expected = inside ? element(a_part, b_part, i - 4, j - 10) : 0.0;
      ASSERT_NEAR(out.row(i)[j], expected, 1e-4) << i << ' ' << j;
    }
  }
}

TEST(Matrix, ThreadsChangeNoBit) {
  std::mt19937 random(3);
  const Matrix a = random_matrix(131, 70, random);
  const Matrix b = random_matrix(70, 90, random);
  Matrix alone(131, 90);
  add_product(view(alone), view(a), view(b));
  for (const int threads : {2, 3, 5}) {
    ThreadPool pool(threads);
    Matrix together(131, 90);
    add_product(view(together), view(a), view(b), &pool);
    EXPECT_EQ(together, alone) << threads;
  }
}

TEST(Matrix, LinearOfFewAndManyRowsAgrees) {
  std::mt19937 random(4);
  const Matrix weight = random_matrix(37, 50, random);
  const Matrix in = random_matrix(20, 50, random);
  Matrix many(20, 37);
  add_linear(many, in, weight);
  for (int64_t i = 0; i < in.rows; ++i) {
    Matrix one_in(1, 50);
    std::copy_n(in.row(i), 50, one_in.row(0));
    Matrix one(1, 37);
    add_linear(one, one_in, weight);
    for (int64_t j = 0; j < 37; ++j) ASSERT_NEAR(one.row(0)[j], many.row(i)[j], 1e-5);
  }
}

}  // namespace
}  // namespace klotski::neural
