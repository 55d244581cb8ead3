#pragma once

namespace klotski {

// While an error is on its way: whatever else goes wrong now, that error is the one that counts.
template <typename Action>
void quietly(const Action& action) noexcept {
  try {
    action();
  } catch (...) {
  }
}

}  // namespace klotski
