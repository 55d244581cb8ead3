#include "base/error.h"

#include <gtest/gtest.h>

#include <string>

namespace klotski {
namespace {

TEST(Error, EachKindHasItsExitCode) {
  EXPECT_EQ(exit_code(ErrorKind::internal), 1);
  EXPECT_EQ(exit_code(ErrorKind::usage), 2);
  EXPECT_EQ(exit_code(ErrorKind::bad_model), 3);
  EXPECT_EQ(exit_code(ErrorKind::does_not_fit), 4);
  EXPECT_EQ(exit_code(ErrorKind::device_unavailable), 5);
  EXPECT_EQ(exit_code(ErrorKind::device_lost), 6);
}

TEST(Error, CarriesItsKindAndItsMessage) {
  try {
    fail(ErrorKind::device_lost, "{} of {}", 1, "two");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device_lost);
    EXPECT_EQ(std::string(error.what()), "1 of two");
  }
}

}  // namespace
}  // namespace klotski
