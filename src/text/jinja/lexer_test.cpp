// Expectations as Python's Jinja2 3.1.6 gives them: whitespace control, raw blocks and literals.
#include <gtest/gtest.h>

#include "text/jinja/testing.h"

namespace klotski {
namespace {

TEST(JinjaLexer, TrimBlocksAndLstripBlocks) {
  EXPECT_EQ(shown("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(shown("  {% if true %}x{% endif %}  \n  y"), "x  \n  y");
  EXPECT_EQ(shown("a {% if true %} b {% endif %} c"), "a  b  c");
  EXPECT_EQ(shown("{{ 1 }}\n{{ 2 }}\n"), "1\n2");
  EXPECT_EQ(shown("\n\n{% set a = 1 %}\n\nx\n\n"), "\n\n\nx\n");
}

TEST(JinjaLexer, Signs) {
  EXPECT_EQ(shown("a  {%- if true -%}  b  {%- endif -%}  c"), "abc");
  EXPECT_EQ(shown("a\n  {%+ if true +%}\n b{% endif %}"), "a\n  \n b");
  EXPECT_EQ(shown("a  {{- 1 -}}  b"), "a1b");
  EXPECT_EQ(shown("x {#- c -#} y"), "xy");
  EXPECT_EQ(shown("x \n {# c #}\n y"), "x \n y");
  EXPECT_EQ(shown("{#+ c +#}\nz"), "\nz");
  EXPECT_EQ(shown("  {{- -1 }}"), "-1");
}

TEST(JinjaLexer, Raw) {
  EXPECT_EQ(shown("{% raw %}{{ x }}{% endraw %}"), "{{ x }}");
  EXPECT_EQ(shown("a {%- raw -%}  {{ x }}  {%- endraw -%} b"), "a{{ x }}b");
  EXPECT_EQ(shown("{% raw %}\n{% if %}\n{% endraw %}\nq"), "\n{% if %}\nq");
}

TEST(JinjaLexer, Newlines) {
  EXPECT_EQ(shown("a\r\nb\rc\n"), "a\nb\nc");
  EXPECT_EQ(shown("{{ \"a\r\nb\" }}"), "a\nb");
}

TEST(JinjaLexer, Strings) {
  EXPECT_EQ(shown("{{ 'a\\n\\t\\x41\\u00e9\\101\\q' }}"), "a\n\tAéA\\q");
  EXPECT_EQ(shown("{{ 'it''s' }}"), "its");
  EXPECT_EQ(shown("{{ \"a\" 'b' }}"), "ab");
  EXPECT_EQ(shown("{{ 'a\\\nb' }}"), "ab");
  EXPECT_EQ(shown("{{ \"{{ x }}\" }}"), "{{ x }}");
  EXPECT_EQ(shown("{{ '%}' }}"), "%}");
}

TEST(JinjaLexer, Numbers) {
  EXPECT_EQ(shown("{{ 1_000 }} {{ 0x1F }} {{ 0b11 }} {{ 0o17 }} {{ 1.5e3 }} {{ 1e-5 }} {{ 00 }}"),
            "1000 31 3 15 1500.0 1e-05 0");
  EXPECT_EQ(shown("{{ l.1 }}"), "1");
  EXPECT_EQ(shown("{{ 12_3.4_5 }}"), "123.45");
}

TEST(JinjaLexer, Broken) {
  EXPECT_TRUE(refused("{{ x"));
  EXPECT_TRUE(refused("{% if x %}"));
  EXPECT_TRUE(refused("{{ \"abc }}"));
  EXPECT_TRUE(refused("{# x"));
  EXPECT_TRUE(refused("{% raw %} x"));
  EXPECT_TRUE(refused("{{ (1] }}"));
  EXPECT_TRUE(refused("{{ 1 }"));
  EXPECT_TRUE(refused("{{ 012 }}"));
  EXPECT_TRUE(refused("{{ $ }}"));
  EXPECT_TRUE(refused("{% nonsense %}"));
  EXPECT_TRUE(refused("{% endif %}"));
  EXPECT_TRUE(refused("{% do x %}"));
  EXPECT_TRUE(refused("{{ x | nofilter }}"));
  EXPECT_TRUE(refused("{{ x is notest }}"));
  EXPECT_TRUE(refused("{% include \"x\" %}"));
  EXPECT_TRUE(refused("{% extends \"x\" %}"));
  EXPECT_TRUE(refused("{% import \"x\" as y %}"));
  EXPECT_TRUE(refused("{% for loop in l %}{% endfor %}"));
  EXPECT_TRUE(refused("{{ \"\\x4\" }}"));
  EXPECT_TRUE(refused("{% break %}"));
}

}  // namespace
}  // namespace klotski
