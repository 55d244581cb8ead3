#include "report/label_room.h"

#include <algorithm>

namespace klotski {

namespace {

bool overlap(const Box& a, const Box& b) {
  return a.left < b.left + b.width && b.left < a.left + a.width && a.top < b.top + b.height &&
         b.top < a.top + a.height;
}

bool lies_in(const Box& inner, const Box& outer) {
  return inner.left >= outer.left && inner.top >= outer.top &&
         inner.left + inner.width <= outer.left + outer.width &&
         inner.top + inner.height <= outer.top + outer.height;
}

}  // namespace

bool LabelRoom::take(const Box& box) {
  const bool free =
      lies_in(box, area_) && std::none_of(taken_.begin(), taken_.end(),
                                          [&](const Box& other) { return overlap(box, other); });
  if (free) taken_.push_back(box);
  return free;
}

}  // namespace klotski
