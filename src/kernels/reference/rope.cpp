#include <cmath>

#include "kernels/reference/reference_processor.h"

namespace klotski::reference {

void ReferenceProcessor::rope(const RopeArguments& arguments) const {
  const int64_t pairs = arguments.pairs;
  for (int64_t token = 0; token < arguments.heads.count; ++token) {
    const auto position = static_cast<float>(arguments.positions[static_cast<size_t>(token)]);
    const float* frequencies =
        arguments.frequencies.data() + arguments.tables[static_cast<size_t>(token)] * pairs;
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const float angle = position * frequencies[pair];
      const float cosine = std::cos(angle) * arguments.scale;
      const float sine = std::sin(angle) * arguments.scale;
      const int64_t first = arguments.first + (arguments.interleaved ? 2 * pair : pair);
      const int64_t second = first + (arguments.interleaved ? 1 : pairs);
      float* row = arguments.heads.row(token);
      for (int64_t head = 0; head < arguments.heads.width; head += arguments.head_dim) {
        const float a = row[head + first];
        const float b = row[head + second];
        row[head + first] = a * cosine - b * sine;
        row[head + second] = b * cosine + a * sine;
      }
    }
  }
}

}  // namespace klotski::reference
