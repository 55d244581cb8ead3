#pragma once

#include <vector>

#include "report/markup.h"

namespace klotski {

// The parts of a drawing that labels have taken, so that no two lie over each other.
class LabelRoom {
 public:
  explicit LabelRoom(const Box& area) : area_(area) {}

  void block(const Box& box) { taken_.push_back(box); }
  bool take(const Box& box);  // false: outside the area or over another

 private:
  Box area_;
  std::vector<Box> taken_;
};

}  // namespace klotski
