// Expectations as Python's Jinja2 3.1.6 gives them: tests.
#include <gtest/gtest.h>

#include "text/jinja/testing.h"

namespace klotski {
namespace {

TEST(JinjaTest, Types) {
  EXPECT_EQ(
      shown("{{ 1 is number }}{{ true is number }}{{ true is integer }}{{ 1 is integer }}{{ 1.0 is "
            "float }}{{ \"a\" is string }}{{ true is boolean }}{{ none is none }}{{ d is mapping "
            "}}{{ l is sequence }}{{ s is sequence }}{{ d is sequence }}{{ x is iterable }}{{ s is "
            "iterable }}{{ nope is iterable }}{{ range is callable }}{{ d.items() is sequence }}"),
      "TrueTrueFalseTrueTrueTrueTrueTrueTrueTrueTrueTrueFalseTrueTrueTrueFalse");
}

TEST(JinjaTest, Values) {
  EXPECT_EQ(
      shown(
          "{{ 4 is even }}{{ 3 is odd }}{{ 9 is divisibleby 3 }}{{ 1 is eq 1 }}{{ 1 is ne(2) }}{{ "
          "1 is lt 2 }}{{ 2 is ge 2 }}{{ 1 is in l }}{{ \"a\" is lower }}{{ \"A\" is upper }}{{ "
          "true is true }}{{ 1 is true }}{{ false is false }}{{ x is sameas x }}{{ \"upper\" is "
          "filter }}{{ \"even\" is test }}{{ x is not defined }}{{ \"<\" | e is escaped }}"),
      "TrueTrueTrueTrueTrueTrueTrueTrueTrueTrueTrueFalseTrueTrueTrueTrueFalseTrue");
  EXPECT_EQ(shown("{{ x is defined and nope is undefined }}{{ 1 is not none }}{{ not 1 is odd }}"),
            "TrueTrueFalse");
  EXPECT_TRUE(refused("{{ \"a\" is even }}"));
  EXPECT_TRUE(refused("{{ 1 is divisibleby 0 }}"));
  EXPECT_TRUE(refused("{{ x is eq }}"));
  EXPECT_TRUE(refused("{{ 1 is even is odd }}"));
}

}  // namespace
}  // namespace klotski
