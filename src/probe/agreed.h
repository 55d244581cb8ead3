#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

namespace klotski {

// The fastest of some measured rates that another one comes near to, by a twentieth. A busy machine
// makes rates too low, and one that nothing confirms may be wrong in itself. Measures again until
// the two fastest agree, `least` times at least and `most` times at most.
inline double fastest_agreed(const std::function<double()>& measure, size_t least = 5,
                             size_t most = 15) {
  constexpr double kNear = 0.95;
  std::vector<double> rates;  // the fastest first
  const auto agrees = [&](size_t i) { return rates[i + 1] >= kNear * rates[i]; };
  while (rates.size() < most && (rates.size() < least || !agrees(0))) {
    rates.push_back(measure());
    std::sort(rates.begin(), rates.end(), std::greater<>());
  }
  size_t i = 0;
  while (i + 2 < rates.size() && !agrees(i)) ++i;
  return agrees(i) ? rates[i] : rates[rates.size() / 2];
}

}  // namespace klotski
