#include "kernels/reference/reference_processor.h"
#include "kernels/reference/weight_row.h"

namespace klotski::reference {

void ReferenceProcessor::embed(Rows out, const TensorView& table,
                               std::span<const TokenId> tokens) const {
  for (int64_t i = 0; i < out.count; ++i) {
    load_row(table, tokens[static_cast<size_t>(i)],
             std::span(out.row(i), static_cast<size_t>(out.width)));
  }
}

}  // namespace klotski::reference
