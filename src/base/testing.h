#pragma once

// What tests of several folders share.

#include <functional>
#include <string>

#include "base/error.h"

namespace klotski {

// The message with which an action is refused; empty where it is not.
inline std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace klotski
