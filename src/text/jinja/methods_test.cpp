// Expectations as Python's Jinja2 3.1.6 gives them: methods of strings, dicts and lists, and %
// formats.
#include <gtest/gtest.h>

#include "text/jinja/testing.h"

namespace klotski {
namespace {

TEST(JinjaMethod, Strip) {
  EXPECT_EQ(shown("{{ \"  a \".strip() }}|{{ \"xxaxx\".strip(\"x\") }}|{{ \"xxaxx\".lstrip(\"x\") "
                  "}}|{{ \"xxaxx\".rstrip(\"x\") }}|{{ \"\\u00a0a\\u2003\".strip() }}|{{ "
                  "\"éaé\".strip(\"é\") }}"),
            "a|a|axx|xxa|a|a");
}

TEST(JinjaMethod, Split) {
  EXPECT_EQ(
      shown(
          "{{ \" a  b \".split() }}{{ \"a,b,,c\".split(\",\") }}{{ \"a,b,c\".split(\",\", 1) }}{{ "
          "\"a b c\".split(none, 1) }}{{ \"a,b,c\".rsplit(\",\", 1) }}{{ \" a b  c \".rsplit(none, "
          "1) }}{{ \"\".split() }}{{ \"\".split(\",\") }}{{ \"a b\".split(maxsplit=0) }}"),
      "['a', 'b']['a', 'b', '', 'c']['a', 'b,c']['a', 'b c']['a,b', 'c'][' a b', 'c'][]['']['a "
      "b']");
  EXPECT_TRUE(refused("{{ \"a\".split(\"\") }}"));
  EXPECT_EQ(shown("{{ \"a\\nb\\r\\nc\\n\".splitlines() }}{{ \"a\\nb\".splitlines(true) }}"),
            "['a', 'b', 'c']['a\\n', 'b']");
  EXPECT_EQ(shown("{{ \"a=b=c\".partition(\"=\") }}{{ \"a=b=c\".rpartition(\"=\") }}{{ "
                  "\"a\".partition(\"=\") }}{{ \"a\".rpartition(\"=\") }}"),
            "('a', '=', 'b=c')('a=b', '=', 'c')('a', '', '')('', '', 'a')");
}

TEST(JinjaMethod, Find) {
  EXPECT_EQ(shown("{{ u.find(\"s\") }}{{ s.find(\"zz\") }}{{ s.rfind(\"o\") }}{{ s.index(\"W\") "
                  "}}{{ s.count(\"l\") }}{{ s.count(\"\") }}{{ s.find(\"o\", 5) }}{{ s.find(\"o\", "
                  "-3) }}{{ s.count(\"l\", 0, 4) }}"),
            "5-1763127-12");
  EXPECT_TRUE(refused("{{ s.index(\"zz\") }}"));
  EXPECT_EQ(shown("{{ s.startswith(\"He\") }}{{ s.endswith((\"x\", \"ld\")) }}{{ "
                  "s.startswith(\"lo\", 3) }}{{ s.startswith(\"\") }}{{ s.endswith(\"\") }}"),
            "TrueTrueTrueTrueTrue");
}

TEST(JinjaMethod, Change) {
  EXPECT_EQ(shown("{{ s.replace(\"l\", \"\") }}{{ \"ab\".replace(\"\", \"-\") }}{{ "
                  "\"aaa\".replace(\"a\", \"b\", 2) }}{{ s.title() }}{{ \"they're\".title() }}{{ "
                  "u.upper() }}{{ u.lower() }}{{ s.swapcase() }}{{ u.casefold() }}"),
            "Heo Word-a-b-bbaHello WorldThey'ReÜBER STRASSEüber straßehELLO wORLDüber strasse");
  EXPECT_EQ(shown("{{ \"-42\".zfill(6) }}{{ \"a\".center(4, \"*\") }}{{ \"a\".ljust(3) }}|{{ "
                  "\"a\".rjust(3, \"é\") }}{{ \"prefix\".removeprefix(\"pre\") }}{{ "
                  "\"a.txt\".removesuffix(\".txt\") }}{{ \"a\\tb\".expandtabs(4) }}{{ "
                  "\",\".join([\"a\", \"b\"]) }}"),
            "-00042*a**a  |ééafixaa   ba,b");
  EXPECT_TRUE(refused("{{ \",\".join([1]) }}"));
}

TEST(JinjaMethod, Ask) {
  EXPECT_EQ(
      shown("{{ \"1\".isdigit() }}{{ \"²\".isdigit() }}{{ \"\".isdigit() }}{{ \"é\".isalpha() }}{{ "
            "\"a1\".isalnum() }}{{ \" \\t\".isspace() }}{{ \"Aé\".isupper() }}{{ \"ab1\".islower() "
            "}}{{ \"Ab Cd\".istitle() }}{{ \"½\".isnumeric() }}{{ \"a_1\".isidentifier() }}"),
      "TrueTrueFalseTrueTrueTrueFalseTrueTrueTrueTrue");
}

TEST(JinjaMethod, Percent) {
  EXPECT_EQ(shown("{{ \"%s %r %d %5.2f|%-5s|%05d|%x|%X|%o|%e|%g|%c|%%\" % (\"a\", \"b\", 3.7, "
                  "3.14159, \"ab\", 42, 255, 255, 8, 12345.678, 0.0001, 65) }}"),
            "a 'b' 3  3.14|ab   |00042|ff|FF|10|1.234568e+04|0.0001|A|%");
  EXPECT_EQ(shown("{{ \"%(a)s\" % d }}{{ \"%s\" % l }}{{ \"%+d % d %#x\" % (1, 2, 255) }}{{ "
                  "\"%*d\" % (5, 42) }}{{ \"%.2s\" % \"abc\" }}"),
            "1[3, 1, 2]+1  2 0xff   42ab");
  EXPECT_TRUE(refused("{{ \"%d\" % \"a\" }}"));
  EXPECT_TRUE(refused("{{ \"%s\" % (1, 2) }}"));
  EXPECT_TRUE(refused("{{ \"%s %s\" % 1 }}"));
  EXPECT_TRUE(refused("{{ \"%q\" % 1 }}"));
}

TEST(JinjaMethod, Format) {
  EXPECT_TRUE(refused("{{ \"{} {a} {0!r}\".format(1, a=2) }}"));
  EXPECT_EQ(shown("{{ \"{} {a}\".format(1, a=2) }}{{ \"{:>5}|{:<5}|{:^5}|{:*^7}\".format(\"a\", "
                  "\"b\", \"c\", \"d\") }}{{ \"{:05d} {:,} {:.2f} {:x} {:#b} {:e} "
                  "{:%}\".format(42, 1234567, 3.14159, 255, 5, 12345.678, 0.25) }}"),
            "1 2    a|b    |  c  |***d***00042 1,234,567 3.14 ff 0b101 1.234568e+04 25.000000%");
  EXPECT_EQ(shown("{{ \"{0[a]} {1[0]} {0.a}\".format(d, l) }}"), "1 3 1");
  EXPECT_EQ(shown("{{ \"{{}}\".format() }}{{ \"{:{w}}\".format(1, w=4) }}"), "{}   1");
  EXPECT_EQ(shown("{{ \"{:05} {:<05} {:*<05} {:05}\".format(\"ab\", 7, 7, -7) }}"),
            "ab000 70000 7**** -0007");
  EXPECT_TRUE(refused("{{ \"{\".format() }}"));
  EXPECT_TRUE(refused("{{ \"{}\".format() }}"));
  EXPECT_TRUE(refused("{{ \"{:d}\".format(\"a\") }}"));
  EXPECT_EQ(shown("{{ \"{0.__class__}\".format(1) }}|"), "|");
}

TEST(JinjaMethod, DictAndList) {
  EXPECT_EQ(shown("{{ d.get(\"a\") }}{{ d.get(\"z\") }}{{ d.get(\"z\", 5) }}{{ d.keys() | list "
                  "}}{{ d.values() | list }}{{ l.index(1) }}{{ l.count(3) }}{{ l.copy() }}"),
            "1None5['a', 'b', 'items'][1, [2, None], 'key']11[3, 1, 2]");
  EXPECT_TRUE(refused("{{ l.index(9) }}"));
  EXPECT_EQ(shown("{{ d.items() | length }}{{ d.keys()[0] }}|"), "3|");
}

TEST(JinjaMethod, Globals) {
  EXPECT_EQ(
      shown("{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}"),
      "1212");
  EXPECT_EQ(shown("{% set j = joiner(\"|\") %}{{ j() }}a{{ j() }}b{{ j() }}"), "a|b|");
  EXPECT_EQ(shown("{{ range(5) | list }}{{ range(2, 8, 3) | list }}{{ range(3, 0, -1) | list }}{{ "
                  "range(3)[1] }}{{ range(9) | length }}"),
            "[0, 1, 2, 3, 4][2, 5][3, 2, 1]19");
  EXPECT_TRUE(refused("{{ range(1, 2, 0) }}"));
  EXPECT_EQ(shown("{{ namespace(a=1) }}"), "<Namespace {'a': 1}>");
}

}  // namespace
}  // namespace klotski
