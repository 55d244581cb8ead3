#include "base/thread_stacks.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>

namespace klotski {

void use_little_address_space_per_thread() {
  pthread_attr_t attributes;
  if (::pthread_attr_init(&attributes) == 0) {
    if (::pthread_attr_setstacksize(&attributes, kThreadStackBytes) == 0) {
      (void)::pthread_setattr_default_np(&attributes);  // otherwise stacks are larger than planned
    }
    ::pthread_attr_destroy(&attributes);
  }
#ifdef M_ARENA_MAX
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    ::mallopt(M_ARENA_MAX, 1);
  }
#endif
}

}  // namespace klotski
