#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "timeline/span.h"

namespace klotski {

// The kinds of work of a drawing, each with its colour. A work and its transfer have one hue, the
// transfer lighter; the usual ones keep their colour in every drawing, so that two drawings can be
// compared.
class WorkColours {
 public:
  explicit WorkColours(const std::vector<TimelineSpan>& spans);

  const std::vector<std::string_view>& works() const { return works_; }  // computing before loads
  std::string_view of(std::string_view work) const;                      // "#rrggbb"

 private:
  std::vector<std::string_view> works_;
  std::vector<std::string_view> others_;  // works without a colour of their own
};

}  // namespace klotski
