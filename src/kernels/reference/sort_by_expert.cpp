#include <vector>

#include "kernels/reference/reference_processor.h"

namespace klotski::reference {

void ReferenceProcessor::sort_by_expert(std::span<const RoutedRows> parts, int64_t experts,
                                        std::span<int32_t> in_rows, std::span<int32_t> out_rows,
                                        std::span<float> scales) const {
  std::vector<size_t> next(static_cast<size_t>(experts) + 1, 0);  // index of an expert's next row
  for (const RoutedRows& part : parts) {
    for (const ExpertId expert : part.experts) ++next[static_cast<size_t>(expert.value) + 1];
  }
  for (size_t e = 1; e < next.size(); ++e) next[e] += next[e - 1];
  for (const RoutedRows& part : parts) {
    for (int64_t i = 0; i < std::ssize(part.experts); ++i) {
      const ExpertId expert = part.experts[static_cast<size_t>(i)];
      const size_t at = next[static_cast<size_t>(expert.value)]++;
      in_rows[at] = static_cast<int32_t>(part.first_row + i / part.top_k);
      out_rows[at] = static_cast<int32_t>(part.first_output + i);
      if (!scales.empty()) scales[at] = part.scales[static_cast<size_t>(i)];
    }
  }
}

}  // namespace klotski::reference
