#include "base/thread_stacks.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>
#include <thread>

namespace klotski {
namespace {

TEST(ThreadStacks, AreAsSmallAsPlanned) {
  use_little_address_space_per_thread();
  size_t bytes = 0;
  std::thread([&] {
    pthread_attr_t attributes;
    ASSERT_EQ(::pthread_getattr_np(::pthread_self(), &attributes), 0);
    EXPECT_EQ(::pthread_attr_getstacksize(&attributes, &bytes), 0);
    ::pthread_attr_destroy(&attributes);
  }).join();
  EXPECT_EQ(bytes, kThreadStackBytes);
}

}  // namespace
}  // namespace klotski
