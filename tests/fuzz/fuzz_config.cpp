// The bytes are a config.json. An accepted one must describe tensors of sane shapes.

#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "model/config.h"
#include "model/counts.h"
#include "model/rope.h"
#include "model/tensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace klotski;
  try {
    const ModelDescription model =
        parse_config({reinterpret_cast<const char*>(data), size}, "config.json");
    if (model.layers.empty() || count_parameters(model).total() <= 0) std::abort();
    for (const TensorSpec& spec : expert_tensors(model, LayerId(0), ExpertId(0))) {
      for (const int64_t dimension : spec.shape) {
        if (dimension <= 0) std::abort();
      }
    }
    const auto pairs = static_cast<size_t>(model.rope.rotated_dims / 2);
    if (rope_frequencies(model.rope, model.max_positions).size() != pairs) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
