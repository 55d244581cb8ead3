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

}  // namespace
}  // namespace klotski
