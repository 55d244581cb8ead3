#pragma once

#include <cstddef>

// Test programs that link counting_new.cpp count what operator new hands out. A file of its own:
// where the compiler sees both malloc and operator delete it takes them for mismatched.
namespace klotski::testing_files {

// The bytes in use now; the peak starts again from them.
size_t restart_peak_bytes();
size_t peak_bytes();

}  // namespace klotski::testing_files
