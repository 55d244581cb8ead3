#pragma once

#include <string>
#include <vector>

namespace klotski {

// Whether a logarithmic axis can show a value: neither 0 nor absurd, and a product or quotient of
// two such values is still finite.
bool can_be_drawn(double value);

// Whole powers of ten that hold every value included.
class Decades {
 public:
  void include(double value);  // skips values that cannot be drawn
  void widen(int at_least);    // to `at_least` decades, adding lower ones

  bool empty() const { return low_ > high_; }
  int low() const { return low_; }
  int high() const { return high_; }

 private:
  int low_ = 1;
  int high_ = 0;
};

// Positive values on a stretch of pixels. `first` may be larger than `last`, as on the y axis.
struct LogScale {
  Decades decades;
  double first = 0;  // pixel of the lowest decade
  double last = 0;   // pixel of the highest decade

  double at(double value) const;
  double value_at_low() const;
  double value_at_high() const;

  // Exponents of the powers of ten to mark, at most `most`, evenly apart.
  std::vector<int> ticks(int most) const;
};

// "0.01", "100", "1e7".
std::string decade_label(int exponent);

}  // namespace klotski
