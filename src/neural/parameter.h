#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "neural/matrix.h"

namespace klotski::neural {

// A matrix that training changes.
struct Parameter {
  std::string name;
  Matrix value;
  Matrix gradient{};  // as large as the value while training, else empty

  Parameter(std::string n, int64_t rows, int64_t columns)
      : name(std::move(n)), value(rows, columns) {}
};

}  // namespace klotski::neural
