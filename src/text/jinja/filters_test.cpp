// Expectations as Python's Jinja2 3.1.6 gives them: filters.
#include <gtest/gtest.h>

#include "text/jinja/testing.h"

namespace klotski {
namespace {

TEST(JinjaFilter, Text) {
  EXPECT_EQ(shown("{{ s | upper }}{{ s | lower }}{{ \"foo bar-baz\" | title }}{{ \"ABC d\" | "
                  "capitalize }}{{ \"  x \" | trim }}{{ \"xxaxx\" | trim(\"x\") }}"),
            "HELLO WORLDhello worldFoo Bar-BazAbc dxa");
  EXPECT_EQ(shown("{{ \"ß ﬁ ΣΑΣ\" | upper }}{{ \"ΣΑΣ İ\" | lower }}"), "SS FI ΣΑΣσας i̇");
  EXPECT_EQ(shown("{{ \"a\" | center(5) }}|{{ s | replace(\"l\", \"L\", 2) }}{{ s | replace(\"o\", "
                  "\"0\") }}"),
            "  a  |HeLLo WorldHell0 W0rld");
  EXPECT_EQ(shown("{{ \"a\\nb\\n\\nc\" | indent }}|{{ \"a\\nb\" | indent(2, true) }}|{{ "
                  "\"a\\n\\nb\" | indent(\">\", blank=true) }}"),
            "a\n    b\n\n    c|  a\n  b|a\n>\n>b");
  EXPECT_EQ(shown("{{ \"foo bar baz qux\" | truncate(9) }}|{{ \"foo bar baz qux\" | truncate(9, "
                  "true) }}|{{ \"foo bar\" | truncate(5) }}|{{ \"foo bar baz qux\" | truncate(11, "
                  "leeway=0, end=\"!\") }}"),
            "foo...|foo ba...|foo bar|foo bar!");
  EXPECT_EQ(shown("{{ \"foo bar, b_z\" | wordcount }}"), "3");
  EXPECT_EQ(shown("{{ \"the quick brown fox-jumps over\" | wordwrap(10) }}"),
            "the quick\nbrown fox-\njumps over");
  EXPECT_EQ(shown("{{ \"%s-%d\" | format(\"a\", 3) }}"), "a-3");
  EXPECT_EQ(shown("{{ \"<a href='x'>&</a>\" | escape }}{{ \"<\" | e | e }}{{ \"<\" | e | "
                  "forceescape }}{{ \"<\" | safe | e }}"),
            "&lt;a href=&#39;x&#39;&gt;&amp;&lt;/a&gt;&lt;&amp;lt;<");
  EXPECT_EQ(shown("{{ \"<p>a  <b>b</b></p> &amp;\" | striptags }}"), "a b &");
  EXPECT_EQ(shown("{{ \"a b/ü?\" | urlencode }}{{ {\"a b\": \"c&\"} | urlencode }}"),
            "a%20b/%C3%BC%3Fa+b=c%26");
  EXPECT_EQ(shown("{{ {\"class\": \"a\", \"id\": none, \"x\": \"<\"} | xmlattr }}"),
            " class=\"a\" x=\"&lt;\"");
}

TEST(JinjaFilter, Numbers) {
  EXPECT_EQ(shown("{{ \"42\" | int }}{{ \"x\" | int }}{{ \"x\" | int(7) }}{{ \"0x1f\" | "
                  "int(base=16) }}{{ \"3.9\" | int }}{{ 3.9 | int }}{{ none | int }}"),
            "420731330");
  EXPECT_EQ(shown("{{ \"1.5\" | float }}{{ \"x\" | float }}{{ 3 | float }}{{ \"1e3\" | float }}"),
            "1.50.03.01000.0");
  EXPECT_EQ(shown("{{ -3 | abs }}{{ -2.5 | abs }}{{ 2.5 | round }}{{ 3.5 | round }}{{ 42 | round "
                  "}}{{ 2.675 | round(2) }}{{ 2.1 | round(0, \"ceil\") }}{{ 1234 | round(-2) }}{{ "
                  "2.19 | round(1, \"floor\") }}"),
            "32.52.04.0422.673.012002.1");
  EXPECT_EQ(shown("{{ 100 | filesizeformat }}{{ 12345 | filesizeformat }}{{ 12345 | "
                  "filesizeformat(true) }}{{ 1 | filesizeformat }}"),
            "100 Bytes12.3 kB12.1 KiB1 Byte");
}

TEST(JinjaFilter, Sequences) {
  EXPECT_EQ(shown("{{ l | sort }}{{ l | sort(reverse=true) }}{{ [\"b\", \"A\"] | sort }}{{ [\"b\", "
                  "\"A\"] | sort(case_sensitive=true) }}{{ m | sort(attribute=\"content\") | "
                  "map(attribute=\"role\") | list }}"),
            "[1, 2, 3][3, 2, 1]['A', 'b']['A', 'b']['user', 'assistant']");
  EXPECT_EQ(shown("{{ l | first }}{{ l | last }}{{ l | min }}{{ l | max }}{{ l | sum }}{{ l | "
                  "length }}{{ l | count }}{{ e | first }}|{{ e | max }}"),
            "3213633|");
  EXPECT_EQ(shown("{{ l | join(\",\") }}{{ m | join(\"-\", attribute=\"role\") }}{{ l | reverse | "
                  "list }}{{ s | reverse }}{{ d | list }}"),
            "3,1,2user-assistant[2, 1, 3]dlroW olleH['a', 'b', 'items']");
  EXPECT_EQ(shown("{{ l | batch(2) | list }}{{ l | batch(2, 0) | list }}{{ l | slice(2) | list "
                  "}}{{ l | slice(2, \"x\") | list }}"),
            "[[3, 1], [2]][[3, 1], [2, 0]][[3, 1], [2]][[3, 1], [2, 'x']]");
  EXPECT_EQ(
      shown("{{ [\"a\", \"A\", \"b\"] | unique | list }}{{ [1, 1.0, true] | unique | list }}"),
      "['a', 'b'][1]");
  EXPECT_EQ(shown("{{ m | groupby(\"role\") }}{% for g in m | groupby(\"role\") %}{{ g.grouper "
                  "}}{{ g.list | length }}{% endfor %}"),
            "[('assistant', [{'role': 'assistant', 'content': 'yo'}]), ('user', [{'role': 'user', "
            "'content': 'hi'}])]assistant1user1");
  EXPECT_EQ(shown("{{ {\"b\": 1, \"A\": 2} | dictsort }}{{ {\"b\": 1, \"A\": 2} | "
                  "dictsort(by=\"value\") }}{{ {\"b\": 1, \"A\": 2} | dictsort(true) }}"),
            "[('A', 2), ('b', 1)][('b', 1), ('A', 2)][('A', 2), ('b', 1)]");
  EXPECT_EQ(shown("{{ d | items | list }}{{ nope | items | list }}"),
            "[('a', 1), ('b', [2, None]), ('items', 'key')][]");
  EXPECT_TRUE(refused("{{ [1, \"a\"] | sort }}"));
  EXPECT_TRUE(refused("{{ x | length }}"));
  EXPECT_TRUE(refused("{{ x | list }}"));
}

TEST(JinjaFilter, Lazy) {
  EXPECT_EQ(shown("{{ l | map(\"string\") | list }}{{ m | map(attribute=\"role\") | join }}{{ m | "
                  "map(attribute=\"z\", default=\"q\") | list }}"),
            "['3', '1', '2']userassistant['q', 'q']");
  EXPECT_EQ(shown("{{ l | select(\"odd\") | list }}{{ l | reject(\"odd\") | list }}{{ m | "
                  "selectattr(\"role\", \"equalto\", \"user\") | list }}{{ m | rejectattr(\"z\") | "
                  "list | length }}"),
            "[3, 1][2][{'role': 'user', 'content': 'hi'}]2");
  EXPECT_EQ(shown("{% set g = l | map(\"string\") %}{{ g | list }}{{ g | list }}"),
            "['3', '1', '2'][]");
  EXPECT_EQ(shown("{% if e | select %}true{% endif %}"), "true");
  EXPECT_EQ(shown("{{ [1, \"a\"] | map(\"abs\") | first }}"), "1");
  EXPECT_TRUE(refused("{{ l | map(\"nofilter\") | list }}"));
  EXPECT_TRUE(refused("{{ l | map(\"string\") | length }}"));
}

TEST(JinjaFilter, Default) {
  EXPECT_EQ(
      shown(
          "{{ nope | default }}|{{ nope | d(1) }}{{ \"\" | default(\"x\") }}{{ \"\" | "
          "default(\"x\", true) }}{{ n | default(\"x\") }}{{ n | default(\"x\", boolean=true) }}"),
      "|1xNonex");
}

TEST(JinjaFilter, Attr) {
  EXPECT_EQ(shown("{{ s | attr(\"upper\") is callable }}{{ d | attr(\"a\") }}|"), "True|");
}

TEST(JinjaFilter, ToJson) {
  EXPECT_EQ(shown("{{ d | tojson }}"), "{\"a\": 1, \"b\": [2, null], \"items\": \"key\"}");
  EXPECT_EQ(shown("{{ {\"a\": [1, 2.5, true, none], \"é\": \"\\n\\\"\\\\\\x01<>&'/\"} | tojson }}"),
            "{\"a\": [1, 2.5, true, null], \"é\": \"\\n\\\"\\\\\\u0001<>&'/\"}");
  EXPECT_EQ(shown("{{ d | tojson(indent=2) }}"),
            "{\n  \"a\": 1,\n  \"b\": [\n    2,\n    null\n  ],\n  \"items\": \"key\"\n}");
  EXPECT_EQ(shown("{{ [] | tojson(indent=2) }}{{ {} | tojson(indent=2) }}"), "[]{}");
  EXPECT_EQ(shown("{{ {\"b\": 1, \"a\": 2} | tojson(sort_keys=true) }}{{ l | "
                  "tojson(separators=(\",\", \":\")) }}{{ \"é😀\" | tojson(ensure_ascii=true) }}"),
            "{\"a\": 2, \"b\": 1}[3,1,2]\"\\u00e9\\ud83d\\ude00\"");
  EXPECT_EQ(shown("{{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }}"),
            "{\"1\": 4, \"null\": 3, \"1.5\": 5}");
  EXPECT_EQ(shown("{{ 1e16 | tojson }} {{ (1, 2) | tojson }} {{ \"inf\" | float | tojson }}"),
            "1e+16 [1, 2] Infinity");
  EXPECT_TRUE(refused("{{ range(3) | tojson }}"));
  EXPECT_TRUE(refused("{{ l | map(\"string\") | tojson }}"));
}

TEST(JinjaFilter, Arguments) {
  EXPECT_TRUE(refused("{{ s | replace(\"a\") }}"));
  EXPECT_TRUE(refused("{{ s | upper(1) }}"));
  EXPECT_EQ(shown("{{ s | replace(old=\"l\", new=\"L\") }}"), "HeLLo WorLd");
  EXPECT_TRUE(refused("{{ l | join(nope=1) }}"));
}

}  // namespace
}  // namespace klotski
