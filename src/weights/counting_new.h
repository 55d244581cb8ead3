#pragma once

#include <cstddef>

// Counters of operator new, for test programs that link counting_new.cpp. It is a file of its own:
// a compiler that sees both malloc and operator delete takes them for mismatched.
namespace klotski::testing_files {

// The bytes in use now; the peak starts again from them.
size_t restart_peak_bytes();
size_t peak_bytes();

}  // namespace klotski::testing_files
