#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace klotski {

// The name nearest to a misspelt one: at most one letter in three is wrong, missing, too many or
// has changed places with the next. Nothing where no name is as near.
std::optional<std::string> nearest_name(std::string_view misspelt,
                                        std::span<const std::string> names);

// The command that may be meant by a first argument that names none, as the end of an error
// message: the nearest command, or `klotski run` where the argument names a model. Else empty.
std::string command_hint(std::string_view argument, std::span<const std::string> commands);

}  // namespace klotski
