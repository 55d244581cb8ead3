// Expectations as Python's Jinja2 3.1.6 gives them: loops, scopes and macros.
#include <gtest/gtest.h>

#include "text/jinja/testing.h"

namespace klotski {
namespace {

TEST(JinjaStatement, For) {
  EXPECT_EQ(shown("{% for a in l %}{{ a }}{% endfor %}"), "312");
  EXPECT_EQ(shown("{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}"),
            "a=1;b=[2, None];items=key;");
  EXPECT_EQ(shown("{% for a in l if a > 1 %}{{ loop.index }}{{ a }}{% endfor %}"), "1322");
  EXPECT_EQ(shown("{% for a in e %}x{% else %}empty{% endfor %}"), "empty");
  EXPECT_EQ(shown("{% for a in s %}{{ a }}.{% endfor %}"), "H.e.l.l.o. .W.o.r.l.d.");
  EXPECT_EQ(shown("{% for k in d %}{{ k }}{% endfor %}"), "abitems");
  EXPECT_TRUE(refused("{% for a in x %}{% endfor %}"));
  EXPECT_TRUE(refused("{% for a, b in l %}{% endfor %}"));
}

TEST(JinjaStatement, LoopVariable) {
  EXPECT_EQ(shown("{% for a in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ "
                  "loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth "
                  "}}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}"),
            "1032TrueFalse311;2121FalseFalse3132;3210FalseTrue311;");
  EXPECT_EQ(
      shown("{% for a in l %}{{ loop.cycle(\"a\", \"b\") }}{{ loop.changed(a > 1) }}{% endfor %}"),
      "aTruebTrueaTrue");
  EXPECT_EQ(shown("{% for a in l if a is odd %}{{ loop.last }}{{ loop.nextitem }};{% endfor %}"),
            "False1;True;");
  EXPECT_EQ(shown("{% for a in l|map(\"string\") %}{{ loop.length }}{{ loop.last }}{% endfor %}"),
            "3False3False3True");
  EXPECT_EQ(shown("{% for a in l %}{% for b in l %}{{ loop.index }}{% endfor %}{{ loop.index }}{% "
                  "endfor %}"),
            "123112321233");
}

TEST(JinjaStatement, Recursive) {
  EXPECT_EQ(shown("{% for a in [1, [2, [3]]] recursive %}{{ loop.depth }}{{ loop(a) if a is "
                  "iterable else a }}{% endfor %}"),
            "11122233");
  EXPECT_TRUE(refused("{% for a in l %}{{ loop(a) }}{% endfor %}"));
}

TEST(JinjaStatement, BreakAndContinue) {
  EXPECT_EQ(shown("{% for a in l %}{% if a == 1 %}{% continue %}{% endif %}{{ a }}{% endfor %}"),
            "32");
  EXPECT_EQ(
      shown("{% for a in l %}{% if a == 1 %}{% break %}{% endif %}{{ a }}{% else %}E{% endfor %}"),
      "3");
  EXPECT_EQ(shown("{% for a in l %}{% break %}{% else %}E{% endfor %}"), "E");
}

TEST(JinjaStatement, Scopes) {
  EXPECT_EQ(
      shown("{% set a = 1 %}{% for b in l %}{{ a }}{% set a = b %}{{ a }}{% endfor %}{{ a }}"),
      "1311121");
  EXPECT_EQ(shown("{% for b in l %}{{ x }}{% set x = 9 %}{{ x }}{% endfor %}{{ x }}"), "3939393");
  EXPECT_EQ(shown("{% if true %}{% set a = 1 %}{% endif %}{{ a }}"), "1");
  EXPECT_EQ(shown("{% if false %}{% set x = 1 %}{% endif %}{{ x }}"), "3");
  EXPECT_EQ(shown("{% macro f() %}{{ a }}{% endmacro %}{% set a = 1 %}{{ f() }}"), "1");
  EXPECT_EQ(shown("{% macro f() %}{{ x }}{% endmacro %}{{ f() }}{% set x = 1 %}{{ f() }}"), "1");
  EXPECT_EQ(shown("{% with a = 1, x = 2 %}{{ a }}{{ x }}{% endwith %}{{ a }}{{ x }}"), "123");
  EXPECT_EQ(shown("{% set ns = namespace(a=1) %}{% for b in l %}{% set ns.a = ns.a + b %}{% endfor "
                  "%}{{ ns.a }}{{ ns.nope }}"),
            "7");
  EXPECT_TRUE(refused("{% set d.a = 1 %}"));
  EXPECT_EQ(shown("{% for b in l %}{% macro f() %}{{ b }}{{ loop is defined }}{% endmacro %}{{ f() "
                  "}}{% endfor %}"),
            "3True1True2True");
}

TEST(JinjaStatement, Set) {
  EXPECT_EQ(shown("{% set a, b = 1, 2 %}{{ a }}{{ b }}"), "12");
  EXPECT_EQ(shown("{% set a = 1, 2 %}{{ a }}"), "(1, 2)");
  EXPECT_EQ(shown("{% set a %} x {{ x }} {% endset %}[{{ a }}]"), "[ x 3 ]");
  EXPECT_EQ(shown("{% set a | upper | trim %} x {% endset %}[{{ a }}]"), "[X]");
  EXPECT_TRUE(refused("{% set a, b = l %}"));
}

TEST(JinjaStatement, Macro) {
  EXPECT_EQ(shown("{% macro f(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ "
                  "f(b=4, a=5) }}{{ f() }}"),
            "1213542");
  EXPECT_EQ(shown("{% macro f(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, z=3) }}"),
            "(2,){'z': 3}");
  EXPECT_TRUE(refused("{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}"));
  EXPECT_TRUE(refused("{% macro f(a) %}{% endmacro %}{{ f(z=2) }}"));
  EXPECT_EQ(shown("{% macro f(a, b=a) %}{{ b }}{% endmacro %}{{ f(1) }}"), "1");
  EXPECT_EQ(
      shown(
          "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}"),
      "543210");
  EXPECT_EQ(shown("{% macro f() %}{% endmacro %}{{ f }}{{ f.name }}{{ f.arguments }}"),
            "<Macro 'f'>f()");
}

TEST(JinjaStatement, CallBlock) {
  EXPECT_EQ(
      shown("{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}in{{ x }}{% endcall %}"),
      "[in3]");
  EXPECT_EQ(shown("{% macro f() %}{{ caller(1, b=2) }}{% endmacro %}{% call(a, b) f() %}{{ a }}{{ "
                  "b }}{% endcall %}"),
            "12");
  EXPECT_EQ(shown("{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}"), "False");
}

TEST(JinjaStatement, OtherBlocks) {
  EXPECT_EQ(shown("{% filter upper %}abc{{ s }}{% endfilter %}"), "ABCHELLO WORLD");
  EXPECT_EQ(shown("{% generation %}a{{ x }}{% endgeneration %}"), "a3");
  EXPECT_EQ(shown("{% block b %}{{ x }}{% endblock %}"), "3");
  EXPECT_EQ(shown("{% set q = 1 %}{% block b %}{{ q }}{% endblock %}"), "1");
  EXPECT_EQ(shown("{% print 1, 2 %}"), "12");
  EXPECT_TRUE(refused("{% filter length %}abc{% endfilter %}"));
  EXPECT_EQ(shown("{% for a in l %}{% generation %}{{ a }}{% endgeneration %}{% endfor %}"), "312");
}

TEST(JinjaStatement, RaiseException) {
  EXPECT_TRUE(refused("{{ raise_exception(\"no way\") }}"));
  EXPECT_EQ(shown("{% if false %}{{ raise_exception(\"no way\") }}{% endif %}ok"), "ok");
}

TEST(JinjaStatement, SoftUnknownFilter) {
  EXPECT_EQ(shown("{% if false %}{{ x | nofilter }}{% endif %}ok"), "ok");
  EXPECT_TRUE(refused("{% if true %}{{ x | nofilter }}{% endif %}"));
  EXPECT_EQ(shown("{{ \"a\" if true else x | nofilter }}"), "a");
}

}  // namespace
}  // namespace klotski
