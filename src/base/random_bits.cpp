#include "base/random_bits.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace klotski {

uint64_t random_bits() {
  uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) != sizeof bits) {
    fail(ErrorKind::internal, "the system gives no random numbers: {}", std::strerror(errno));
  }
  return bits;
}

}  // namespace klotski
