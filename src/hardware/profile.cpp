#include "hardware/profile.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace klotski {

Curve::Curve(std::vector<double> sizes, std::vector<double> seconds)
    : sizes_(std::move(sizes)), seconds_(std::move(seconds)) {
  const auto sane = [](double value) { return std::isfinite(value) && value > 0.0; };
  const auto not_ascending = [](double a, double b) { return a >= b; };
  if (sizes_.empty() || sizes_.size() != seconds_.size() ||
      !std::all_of(sizes_.begin(), sizes_.end(), sane) ||
      !std::all_of(seconds_.begin(), seconds_.end(), sane) ||
      std::adjacent_find(sizes_.begin(), sizes_.end(), not_ascending) != sizes_.end()) {
    fail(ErrorKind::internal,
         "a measured curve: expected positive seconds at ascending positive sizes, found {} sizes "
         "and {} seconds that are not",
         sizes_.size(), seconds_.size());
  }
}

Curve Curve::faster(double factor) const {
  Curve result = *this;
  for (double& seconds : result.seconds_) seconds /= factor;
  return result;
}

double Curve::at(double size) const {
  if (empty()) return 0.0;
  if (size <= sizes_.front()) return seconds_.front();
  if (sizes_.size() == 1) return seconds_.front() * size / sizes_.front();
  const auto above = std::lower_bound(sizes_.begin(), sizes_.end(), size);
  const bool beyond = above == sizes_.end();
  const auto right = static_cast<size_t>((beyond ? above - 1 : above) - sizes_.begin());
  const double slope =
      (seconds_[right] - seconds_[right - 1]) / (sizes_[right] - sizes_[right - 1]);
  // Measured from the right point, so that a measured size gives exactly its measured seconds.
  const double value = seconds_[right] + slope * (size - sizes_[right]);
  return beyond ? std::max(value, seconds_.back()) : value;
}

const LinkProfile& MachineProfile::link(TierId from, TierId to) const {
  static const LinkProfile kNone;
  for (const LinkProfile& link : links) {
    if (link.from == from && link.to == to) return link;
  }
  return kNone;
}

}  // namespace klotski
