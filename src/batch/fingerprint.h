#pragma once

#include <string>

#include "session/opened_model.h"

namespace klotski {

// A hash that tells a model from another one: of its configuration and tokenizer all bytes count,
// of each weight file its size, its header and some places spread over it. Copies of a model have
// one fingerprint; reading all weights would take minutes.
std::string model_fingerprint(const OpenedModel& model);

}  // namespace klotski
