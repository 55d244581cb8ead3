#pragma once

#include <compare>
#include <cstdint>

namespace klotski {

// An index that cannot be mixed up with an index of another kind.
template <typename Tag>
struct Id {
  int32_t value = 0;

  constexpr Id() = default;
  explicit constexpr Id(int64_t v) : value(static_cast<int32_t>(v)) {}
  constexpr auto operator<=>(const Id&) const = default;
};

using LayerId = Id<struct LayerTag>;
using ExpertId = Id<struct ExpertTag>;  // within its layer

// Tokens come and go as bulk numeric data (files, JSON, embeddings), so they stay plain integers.
using TokenId = int32_t;

}  // namespace klotski
