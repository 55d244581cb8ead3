#include "report/log_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace klotski {

bool can_be_drawn(double value) { return value >= 1e-30 && value <= 1e30; }

void Decades::include(double value) {
  if (!can_be_drawn(value)) return;
  const double exponent = std::log10(value);
  const int below = static_cast<int>(std::floor(exponent));
  const int above = static_cast<int>(std::ceil(exponent));
  const bool first = empty();
  low_ = first ? below : std::min(low_, below);
  high_ = first ? above : std::max(high_, above);
}

void Decades::widen(int at_least) {
  if (!empty()) low_ = std::min(low_, high_ - at_least);
}

double LogScale::at(double value) const {
  const double place = (std::log10(value) - decades.low()) / (decades.high() - decades.low());
  return first + place * (last - first);
}

double LogScale::value_at_low() const { return std::pow(10.0, decades.low()); }
double LogScale::value_at_high() const { return std::pow(10.0, decades.high()); }

std::vector<int> LogScale::ticks(int most) const {
  const int step = (decades.high() - decades.low()) / most + 1;
  std::vector<int> exponents;
  for (int i = decades.low(); i <= decades.high(); i += step) exponents.push_back(i);
  return exponents;
}

std::string decade_label(int exponent) {
  if (exponent < -3 || exponent > 5) return fmt::format("1e{}", exponent);
  return fmt::format("{:.{}f}", std::pow(10.0, exponent), std::max(0, -exponent));
}

}  // namespace klotski
