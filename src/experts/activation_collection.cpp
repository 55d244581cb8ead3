#include "experts/activation_collection.h"

#include <utility>

#include "base/error.h"

namespace klotski {

namespace {

std::vector<double> squared_by_layers(const ActivationMatrix& matrix) {
  std::vector<double> sums = {0.0};
  for (size_t l = 0; l < matrix.layers(); ++l) {
    double sum = sums.back();
    for (const float count : matrix.layer(l)) sum += double{count} * count;
    sums.push_back(sum);
  }
  return sums;
}

}  // namespace

ActivationCollection::ActivationCollection(RoutingTraceShape shape, int64_t capacity)
    : shape_(std::move(shape)), capacity_(capacity) {
  check_shape(shape_, "activation collection");
  if (capacity < 1) {
    fail(ErrorKind::internal, "activation collection: expected room for at least 1, found {}",
         capacity);
  }
}

void ActivationCollection::add(const ActivationMatrix& request) {
  if (request.empty()) return;
  Stored stored{request, squared_by_layers(request)};
  ++version_;
  if (size() < capacity_) {
    matrices_.push_back(std::move(stored));
    return;
  }
  matrices_[static_cast<size_t>(nearest(request))] = std::move(stored);
}

// The number of the stored matrix nearest to `request`, of equals the lowest.
int64_t ActivationCollection::nearest(const ActivationMatrix& request) const {
  const size_t layers = request.layers();
  const double request_squared = dot_product(request, request, layers);
  int64_t best = 0;
  double least = 2.0;
  for (int64_t i = 0; i < size(); ++i) {
    const double dot = dot_product(request, (*this)[i], layers);
    const double distance = cosine_distance(dot, request_squared, squared(i, layers));
    if (distance >= least) continue;
    best = i;
    least = distance;
  }
  return best;
}

}  // namespace klotski
