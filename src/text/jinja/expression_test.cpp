// Expectations as Python's Jinja2 3.1.6 gives them: operators, access and printing.
#include <gtest/gtest.h>

#include "text/jinja/testing.h"

namespace klotski {
namespace {

TEST(JinjaExpression, Arithmetic) {
  EXPECT_EQ(
      shown("{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 2 ** -1 }}"),
      "3 -4 -2 2 1024 0.5");
  EXPECT_EQ(shown("{{ 7 / 2 }} {{ 4 / 2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}"), "3.5 2.0 3.0 0.5");
  EXPECT_EQ(shown("{{ 1 + 2.0 }} {{ true + 1 }} {{ -x }} {{ +x }}"), "3.0 2 -3 3");
  EXPECT_EQ(shown("{{ \"ab\" * 3 }}{{ [1] * 2 }}{{ [1] + [2] }}{{ (1,) + (2,) }}"),
            "ababab[1, 1][1, 2](1, 2)");
  EXPECT_EQ(shown("{{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ -2 ** (x - 1) }} {{ 1 - 2 - 3 }}"),
            "64 4 -4 -4");
}

TEST(JinjaExpression, ArithmeticErrors) {
  EXPECT_TRUE(refused("{{ 1 / 0 }}"));
  EXPECT_TRUE(refused("{{ 1 % 0 }}"));
  EXPECT_TRUE(refused("{{ \"a\" + 1 }}"));
  EXPECT_TRUE(refused("{{ nope + 1 }}"));
  EXPECT_TRUE(refused("{{ -\"a\" }}"));
  EXPECT_TRUE(refused("{{ none + 1 }}"));
  EXPECT_TRUE(refused("{{ [1] - [1] }}"));
}

TEST(JinjaExpression, Printing) {
  EXPECT_EQ(shown("{{ true }} {{ none }} {{ 1.0 }} {{ 1e16 }} {{ 1e15 }} {{ 0.1 }} {{ 1e-5 }} {{ "
                  "0.0001 }} {{ -0.0 }} {{ 1e22 }}"),
            "True None 1.0 1e+16 1000000000000000.0 0.1 1e-05 0.0001 -0.0 1e+22");
  EXPECT_EQ(shown("{{ [1, \"a\", none, 1.5, (1,), {}] }}"), "[1, 'a', None, 1.5, (1,), {}]");
  EXPECT_EQ(shown("{{ {\"a\": \"it's\", \"b\": '\"', 1: \"\\n\\\\\\x07é\\u200b\"} }}"),
            "{'a': \"it's\", 'b': '\"', 1: '\\n\\\\\\x07é\\u200b'}");
  EXPECT_EQ(shown("{{ [\"'\\\"\"] }}"), "['\\'\"']");
  EXPECT_EQ(shown("{{ d.items() }} {{ d.keys() }} {{ range(3) }} {{ range(1, 9, 2) }}"),
            "dict_items([('a', 1), ('b', [2, None]), ('items', 'key')]) dict_keys(['a', 'b', "
            "'items']) range(0, 3) range(1, 9, 2)");
  EXPECT_EQ(shown("{{ () }}{{ (1, 2) }}"), "()(1, 2)");
  EXPECT_EQ(shown("{{ [nope] }}"), "[Undefined]");
}

TEST(JinjaExpression, Comparison) {
  EXPECT_EQ(shown("{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 == true }} {{ \"a\" < \"b\" }} {{ "
                  "[1, 2] < [1, 3] }}"),
            "True False True True True");
  EXPECT_EQ(shown("{{ 1 in l }} {{ 9 not in l }} {{ \"a\" in d }} {{ \"ell\" in s }} {{ nope in l "
                  "}} {{ 1 in nope }}"),
            "True True True True False False");
  EXPECT_EQ(shown("{{ 1 == \"1\" }} {{ none == nope }} {{ nope == nah }}"), "False False True");
  EXPECT_TRUE(refused("{{ 1 < \"a\" }}"));
  EXPECT_TRUE(refused("{{ none < 1 }}"));
  EXPECT_TRUE(refused("{{ 1 in 5 }}"));
}

TEST(JinjaExpression, Logic) {
  EXPECT_EQ(shown("{{ 0 or \"x\" }} {{ 1 and [] }} {{ not x }} {{ not \"\" }} {{ n or e or 7 }}"),
            "x [] False True 7");
  EXPECT_EQ(shown("{{ \"a\" if x else \"b\" }}{{ \"a\" if not x }}|{{ \"a\" if n else \"b\" if e "
                  "else \"c\" }}"),
            "a|c");
}

TEST(JinjaExpression, Access) {
  EXPECT_EQ(shown("{{ d.a }} {{ d[\"a\"] }} {{ d.items is callable }} {{ d[\"items\"] }} {{ d.nope "
                  "}}|{{ l[0] }}{{ l[-1] }}{{ l[9] }}|{{ s[0] }}{{ u[-1] }}"),
            "1 1 True key |32|He");
  EXPECT_EQ(shown("{{ m[0].role }}{{ m[0][\"content\"] }}{{ m.0.role }}"), "userhiuser");
  EXPECT_TRUE(refused("{{ nope.x }}"));
  EXPECT_TRUE(refused("{{ d.nope.x }}"));
  EXPECT_EQ(shown("{{ n.x }}|"), "|");
  EXPECT_EQ(shown("{{ s.upper() }}{{ s[\"upper\"]() }}"), "HELLO WORLDHELLO WORLD");
  EXPECT_EQ(shown("{{ l[\"x\"] }}|{{ 5[\"x\"] }}|{{ d[[1]] }}|"), "|||");
}

TEST(JinjaExpression, Slices) {
  EXPECT_EQ(shown("{{ l[1:] }}{{ l[:-1] }}{{ l[::-1] }}{{ l[::2] }}{{ l[5:] }}{{ l[-2:9] }}"),
            "[1, 2][3, 1][2, 1, 3][3, 2][][1, 2]");
  EXPECT_EQ(
      shown("{{ s[1:4] }}|{{ u[5:] }}|{{ u[::-1] }}|{{ s[-5:-1] }}|{{ s[::3] }}|{{ u[1:8:2] }}"),
      "ell|straße|eßarts REBÜ|Worl|HlWl|BRsr");
  EXPECT_TRUE(refused("{{ l[::0] }}"));
  EXPECT_TRUE(refused("{{ x[1:] }}"));
  EXPECT_EQ(shown("{{ (1,2,3)[1:] }}"), "(2, 3)");
}

TEST(JinjaExpression, Concat) {
  EXPECT_EQ(shown("{{ 1 ~ \"a\" ~ none ~ [1] ~ nope }}"), "1aNone[1]");
}

TEST(JinjaExpression, Undefined) {
  EXPECT_EQ(shown("{{ nope }}|{{ nope is defined }}|{{ nope | default(\"d\") }}|{% for a in nope "
                  "%}{% endfor %}{{ nope | length }}|{{ not nope }}"),
            "|False|d|0|True");
  EXPECT_TRUE(refused("{{ nope() }}"));
  EXPECT_TRUE(refused("{{ nope[0] }}"));
  EXPECT_TRUE(refused("{{ nope | int }}"));
  EXPECT_TRUE(refused("{{ nope | tojson }}"));
  EXPECT_TRUE(refused("{{ nope < 1 }}"));
}

TEST(JinjaExpression, Sandbox) {
  EXPECT_EQ(shown("{{ s.__class__ }}|{{ s.__class__ is defined }}"), "|False");
  EXPECT_TRUE(refused("{{ s.__class__.__mro__ }}"));
  EXPECT_TRUE(refused("{{ l.append(1) }}"));
  EXPECT_TRUE(refused("{{ d.update({}) }}"));
  EXPECT_TRUE(refused("{{ d.pop(\"a\") }}"));
  EXPECT_EQ(shown("{{ l.append }}|"), "|");
  EXPECT_TRUE(refused("{{ ().__class__.__bases__[0].__subclasses__() }}"));
  EXPECT_EQ(shown("{{ raise_exception.__globals__ }}|"), "|");
  EXPECT_TRUE(refused("{{ range(100001) }}"));
  EXPECT_TRUE(refused("{{ range(10 ** 12) }}"));
  EXPECT_TRUE(refused("{{ cycler.__init__.__globals__.os }}"));
}

TEST(JinjaExpression, Calls) {
  EXPECT_EQ(
      shown("{{ range(*[1, 4]) | list }}{{ dict(a=1, **{\"b\": 2}) }}{{ dict([(\"a\", 1)]) }}"),
      "[1, 2, 3]{'a': 1, 'b': 2}{'a': 1}");
  EXPECT_EQ(shown("{{ s.replace(\"l\", \"L\", 1) }}"), "HeLlo World");
  EXPECT_TRUE(refused("{{ s.replace() }}"));
  EXPECT_TRUE(refused("{{ s.nope() }}"));
  EXPECT_TRUE(refused("{{ x() }}"));
}

// Results equal Python's where they fit 64 bits; others are an error, not undefined behaviour.
TEST(JinjaExpression, IntegersAtTheirLimits) {
  const std::string low = "(-9223372036854775807 - 1)";
  const std::string overflow = "ERROR: t:1: an integer does not fit 64 bits";
  const auto shown_with_low = [&](std::string text) {
    if (const size_t at = text.find("low"); at != std::string::npos) text.replace(at, 3, low);
    return rendered("{{ " + text + " }}");
  };
  EXPECT_EQ(shown_with_low("9223372036854775807 % -3"), "-2");
  EXPECT_EQ(shown_with_low("low % 3"), "1");
  EXPECT_EQ(shown_with_low("low % -1"), "0");
  EXPECT_EQ(shown_with_low("low % 9223372036854775807"), "9223372036854775806");
  EXPECT_EQ(shown_with_low("low // 3"), "-3074457345618258603");
  EXPECT_EQ(shown_with_low("9223372036854775807 // -3"), "-3074457345618258603");
  EXPECT_EQ(shown_with_low("low // -1"), overflow);
  EXPECT_EQ(shown_with_low("low / -1"), "9.223372036854776e+18");
  EXPECT_EQ(shown_with_low("-low"), overflow);
  EXPECT_EQ(shown_with_low("low | abs"), overflow);
  EXPECT_EQ(shown_with_low("9223372036854775807 | round(-1)"), overflow);
  EXPECT_EQ(shown_with_low("low | round(-1)"), overflow);
  EXPECT_EQ(shown_with_low("9223372036854775804 | round(-1)"), "9223372036854775800");
  EXPECT_EQ(shown_with_low("low | round(-18)"), "-9000000000000000000");
  EXPECT_EQ(shown_with_low("low | round(-19)"), overflow);
  EXPECT_EQ(shown_with_low("5000000000000000000 | round(-19)"), "0");
  EXPECT_EQ(shown_with_low("123 | round(low)"), "0");
  EXPECT_EQ(shown_with_low("1.5 | round(low)"), "0.0");
  EXPECT_EQ(shown_with_low("1.5 | round(-310)"), "0.0");
  EXPECT_EQ(shown_with_low("[25 | round(-1), 35 | round(-1), -25 | round(-1), -26 | round(-1)]"),
            "[20, 40, -20, -30]");
}

TEST(JinjaExpression, WidthsAtTheirLimits) {
  const std::string low = "{% set low = -9223372036854775807 - 1 %}";
  EXPECT_EQ(rendered(low + "{{ 'ab'.ljust(low) }}{{ 'ab'.rjust(low) }}{{ 'ab'.center(low) }}"
                           "{{ 'ab'.zfill(low) }}{{ 'ab' | center(low) }}"),
            "ababababab");
  EXPECT_TRUE(fails(low + "{{ 'ab' | truncate(low) }}"));
  EXPECT_TRUE(fails(low + "{{ '%*d' % (low, 1) }}"));
  EXPECT_EQ(rendered("{{ '%*d|' % (-3, 1) }}"), "1  |");
}

TEST(JinjaExpression, NumbersFromOddText) {
  EXPECT_EQ(rendered("{{ 'é' | int }}{{ 'é_é' | int }}{{ 'é' | int(7, 36) }}{{ '1_é' | float }}"),
            "0070.0");
  EXPECT_EQ(rendered("{{ 1e300.is_integer() }} {{ 1e18.is_integer() }} {{ 9.5e18.is_integer() }} "
                     "{{ 0.5.is_integer() }} {{ (1e308 * 10).is_integer() }} "
                     "{{ ('nan' | float).is_integer() }}"),
            "True True True False False False");
}

}  // namespace
}  // namespace klotski
