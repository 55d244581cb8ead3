#pragma once

#include <cstdint>
#include <string>

#include "hardware/profile.h"
#include "kernels/ops.h"
#include "memory/tier.h"
#include "model/description.h"
#include "probe/limits.h"
#include "probe/random_weights.h"

namespace klotski {

// Everything about a layer that its arithmetic depends on, as text: layers of equal texts are one
// kind.
std::string layer_shape(const Layer& layer);

// Measures every kind of layer of a model once, on random weights of these types. Takes memory from
// `tier` alone.
ModelProfile measure_model(const ModelDescription& model, const StoredTypes& types,
                           const Processor& ops, Precision precision, Tier& tier,
                           const ProbeLimits& limits = {});

}  // namespace klotski
