#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace klotski {

// The names of published models whose shapes are known.
std::vector<std::string_view> shape_names();

// How a shape is written, for help and errors.
std::string_view shape_syntax();

// Takes the word for a packed format off the end of a shape ("compact" of "mixtral-8x7b,compact").
// Expert weights are wanted in it then, which is no matter of the configuration.
std::optional<std::string_view> take_format(std::string_view* shape);

// The config.json of a shape: a name, a name with fields changed ("qwen3-30b-a3b,L=4"), or a shape
// by hand ("L=18,H=2048,F=7168,E=8,K=2"). By hand the vocabulary is `tokens` large unless given.
// Throws a usage error for anything else; parse_config accepts every result.
OrderedJson shape_config(std::string_view shape, int64_t tokens);

}  // namespace klotski
