// Templates that want too much, and templates that break out: all end in an Error, quickly.
#include <gtest/gtest.h>
#include <pthread.h>

#include <functional>

#include "base/error.h"
#include "base/testing.h"
#include "text/jinja/testing.h"

namespace klotski {
namespace {

#if defined(__has_feature)
#define KLOTSKI_HAS_ASAN __has_feature(address_sanitizer)
#elif defined(__SANITIZE_ADDRESS__)
#define KLOTSKI_HAS_ASAN 1
#else
#define KLOTSKI_HAS_ASAN 0
#endif
#if KLOTSKI_HAS_ASAN || !defined(NDEBUG) || !defined(__OPTIMIZE__)
constexpr bool kLargeFrames = true;
#else
constexpr bool kLargeFrames = false;
#endif

std::string repeated(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

bool fails_with(std::string_view source, std::string_view message, TemplateLimits limits = {}) {
  const std::string text = rendered(source, R"({"l": [1, 2, 3], "s": "abc"})", limits);
  if (text.find(message) != std::string::npos) return true;
  ADD_FAILURE() << source.substr(0, 80) << ": " << text.substr(0, 200);
  return false;
}

TEST(JinjaBudget, StepsEndLongLoops) {
  TemplateLimits limits;
  limits.max_steps = 10'000;
  EXPECT_TRUE(fails_with("{% for a in range(100000) %}{% endfor %}", "step budget", limits));
  EXPECT_TRUE(
      fails_with("{% for a in range(999) %}{% for b in range(999) %}{% endfor %}{% endfor %}",
                 "step budget", limits));
  EXPECT_TRUE(fails_with("{{ range(100000) | map('string') | list }}", "budget", limits));
  EXPECT_FALSE(fails("{% for a in range(100) %}{{ a }}{% endfor %}", "{}", limits));
}

TEST(JinjaBudget, SlicingALongTextCostsSteps) {
  TemplateLimits limits;
  limits.max_steps = 100'000;
  EXPECT_TRUE(
      fails_with("{% set t = 'é' * 100000 %}{% for a in range(1000) %}{% set b = t[1:] %}"
                 "{% endfor %}",
                 "step budget", limits));
}

// A step or a byte of input must take about equal time whatever the template does with it.
TEST(JinjaTime, StrippingIsLinear) {
  const auto strip = [](int64_t n) {
    const auto shown = [&](std::string text) {
      while (text.find('@') != std::string::npos) {
        text.replace(text.find('@'), 1, std::to_string(n));
      }
      return rendered(text);
    };
    EXPECT_EQ(shown("{{ ('a' * @).strip('b' * @ ~ 'a') }}"), "");
    EXPECT_EQ(shown("{{ ('é' * @ ~ 'x').lstrip('b' * @ ~ 'é') }}"), "x");
    EXPECT_EQ(shown("{{ ('x' ~ 'é' * @).rstrip('b' * @ ~ 'é') }}"), "x");
    EXPECT_EQ(shown("{{ ('a' * @) | trim('b' * @ ~ 'a') }}"), "");
  };
  EXPECT_TRUE(takes_linear_time(strip, 1'250'000));
}

TEST(JinjaTime, SearchingIsLinear) {
  const auto search = [](int64_t n) {
    const std::string hay = fmt::format("{{% set hay = 'a' * {} %}}", 5 * n);
    const std::string needles =
        fmt::format("{{% set front = 'b' ~ 'a' * {0} %}}{{% set back = 'a' * {0} ~ 'b' %}}", n);
    for (const std::string_view needle : {"front", "back"}) {
      const auto shown = [&](std::string_view expression) {
        std::string text(expression);
        text.replace(text.find('@'), 1, needle);
        return rendered(hay + needles + "{{ " + text + " }}");
      };
      const std::string length = std::to_string(5 * n);
      EXPECT_EQ(shown("@ in hay"), "False");
      EXPECT_EQ(shown("hay.find(@)"), "-1");
      EXPECT_EQ(shown("hay.rfind(@)"), "-1");
      EXPECT_EQ(shown("hay.count(@)"), "0");
      EXPECT_EQ(shown("hay.split(@) | length"), "1");
      EXPECT_EQ(shown("hay.rsplit(@) | length"), "1");
      EXPECT_EQ(shown("hay.partition(@)[0] | length"), length);
      EXPECT_EQ(shown("hay.rpartition(@)[2] | length"), length);
      EXPECT_EQ(shown("hay.replace(@, 'c') | length"), length);
      EXPECT_EQ(shown("hay | replace(@, 'c') | length"), length);
    }
  };
  EXPECT_TRUE(takes_linear_time(search, 250'000));
}

TEST(JinjaTime, LongNeedlesAreFound) {
  const std::string needle = "{% set n = 'ab' * 500 ~ 'c' %}{% set t = n ~ 'ab' ~ n ~ 'x' %}";
  EXPECT_EQ(rendered(needle + "{{ t.find(n) }} {{ t.find(n, 1) }} {{ t.rfind(n) }} {{ n in t }}"),
            "0 1003 1003 True");
  EXPECT_EQ(rendered(needle + "{{ t.split(n) }} {{ t.rsplit(n) }} {{ t.rsplit(n, 1)[1] }}"),
            "['', 'ab', 'x'] ['', 'ab', 'x'] x");
  EXPECT_EQ(rendered(needle + "{{ t.count(n) }} {{ t.replace(n, '-') }} {{ t.rpartition(n)[2] }}"),
            "2 -ab-x x");
  EXPECT_EQ(rendered("{{ 'aabaabaaab'.rfind('aab') }} {{ 'abcab'.rfind('') }} {{ ''.rfind('a') }} "
                     "{{ 'aaaa'.rsplit('aa') }} {{ 'abababa'.rsplit('aba', 1) }}"),
            "7 5 -1 ['', '', ''] ['abab', '']");
}

std::string numbered(std::string_view before, int count, std::string_view after) {
  std::string out;
  for (int i = 0; i < count; ++i) out += fmt::format("{}a{}{}", before, i, after);
  return out;
}

// Any of these takes minutes if it is free of charge.
TEST(JinjaTime, EveryElementAndNameCostsSteps) {
  const double start = processor_seconds();
  TemplateLimits limits;
  limits.max_steps = 2'000'000;
  const auto in_loop = [](const std::string& body) {
    return "{% for i in range(100000) %}" + body + "{% endfor %}";
  };
  const std::string keywords = numbered("", 1000, "=1,");
  for (const std::string& source : {
           in_loop("{% set x = range(100000) | sum %}"),
           in_loop("{% for b in range(100000) if false %}{% endfor %}"),
           in_loop("{% for b in range(100000) if i == -1 %}{% endfor %}"),
           in_loop("{% if false %}" + numbered("{{ ", 2000, " }}") + "{% endif %}"),
           in_loop("{% if i == -1" + repeated(" or i == -1", 2000) + " %}{% endif %}"),
           in_loop("{% if x" + repeated(" or x", 2000) + " %}{% endif %}"),
           "{% macro f(" + numbered("", 1000, ",") + "z=1) %}{% endmacro %}{% set d = dict(" +
               keywords + ") %}" + in_loop("{{ f(**d) }}"),
           "{% macro f() %}{{ kwargs | length }}{% endmacro %}{% set d = dict(" + keywords +
               ") %}" + in_loop("{{ f(z=1, **d) }}"),
           "{% set d = dict(" + keywords + ") %}" +
               in_loop("{{ '" + repeated("{a999}", 100) + "'.format(**d) }}"),
           in_loop("{{ 5[0:1]" + repeated(" ~ 5[0:1]", 2000) + " }}"),
       }) {
    EXPECT_TRUE(fails_with(source, "budget", limits)) << source.substr(0, 100);
  }
  EXPECT_LT(processor_seconds() - start, kLargeFrames ? 60 : 5);
}

TEST(JinjaTime, ParsingIsLinear) {
  const auto expect_linear = [](const std::function<std::string(int count)>& source, int count) {
    const auto parse = [&](int64_t size) {
      EXPECT_EQ(rendered(source(static_cast<int>(size))), "");
    };
    EXPECT_TRUE(takes_linear_time(parse, count)) << source(2);
  };
  expect_linear(
      [](int n) {
        return numbered("{% set ", n, " = 1 %}") +
               repeated("{% if a1 %}{% set b = 1 %}{% else %}{{ c }}{% endif %}", n);
      },
      500);
  expect_linear([](int n) { return numbered("{% if x %}{% set ", n, " = 1 %}{% endif %}"); }, 1250);
  expect_linear(
      [](int n) {
        return "{% if x %}" + numbered("{% elif ", n, " %}{% set b = 1 %}") + "{% endif %}";
      },
      1250);
  expect_linear(
      [](int n) {
        return repeated("{% if x %}", 60) + numbered("{% set ", n, " = 1 %}") +
               repeated("{% endif %}", 60);
      },
      1250);
  expect_linear(
      [](int n) { return "{% macro f(" + numbered("", n, ",") + "z=1) %}{% endmacro %}"; }, 7500);
  expect_linear([](int n) { return "{% set d = dict(" + numbered("", n, "=1,") + ") %}"; }, 7500);
  expect_linear([](int n) { return numbered("{% block ", n, " %}{% endblock %}"); }, 2500);
}

TEST(JinjaBudget, CapturedTextCostsMemory) {
  TemplateLimits limits;
  limits.max_memory_bytes = 1'000'000;
  const std::string fill =
      "{% for i in range(60) %}" + repeated("0123456789", 1000) + "{% endfor %}";
  EXPECT_FALSE(fails(fill + fill, "{}", limits));
  EXPECT_FALSE(fails("{% set a %}" + fill + "{% endset %}", "{}", limits));
  EXPECT_TRUE(fails_with("{% set a %}" + fill + "{% set b %}" + fill + "{% endset %}{% endset %}",
                         "memory budget", limits));
  EXPECT_TRUE(
      fails_with("{% macro f() %}" + fill + "{{ f() }}{% endmacro %}{{ f() }}", "budget", limits));
}

TEST(JinjaBudget, MemoryIsCheckedBeforeAllocation) {
  for (const std::string_view source :
       {"{{ 'a' * 10 ** 12 }}", "{{ [1] * 10 ** 12 }}", "{{ 'a'.center(10 ** 12) }}",
        "{{ 'a'.zfill(10 ** 12) }}", "{{ 'a' | center(10 ** 12) }}", "{{ '%*d' % (10 ** 10, 1) }}",
        "{{ '%10000000000d' % 1 }}", "{{ '{:10000000000}'.format(1) }}",
        "{{ 'a\nb' | indent(10 ** 12) }}", "{{ l | batch(10 ** 12, 0) | list }}",
        "{{ ('a' * 10 ** 6).replace('a', 'b' * 10 ** 6) }}",
        "{{ ('b' * 10 ** 6).join('a' * 10 ** 6) }}", "{{ (['a' * 10 ** 6] * 10 ** 5) | join }}",
        "{{ 'a'.ljust(10 ** 12) }}", "{{ '\t'.expandtabs(10 ** 12) }}",
        "{{ ['a' * 10 ** 6] * 10 ** 4 }}", "{{ (['a' * 10 ** 6] * 10 ** 4) | tojson }}"}) {
    EXPECT_TRUE(fails_with(source, "budget")) << source;
  }
}

TEST(JinjaBudget, DoublingEnds) {
  EXPECT_TRUE(
      fails_with("{% set n = namespace(x='ab') %}{% for a in range(99) %}"
                 "{% set n.x = n.x ~ n.x %}{% endfor %}",
                 "memory budget"));
  EXPECT_TRUE(
      fails_with("{% set n = namespace(x=[1]) %}{% for a in range(99) %}"
                 "{% set n.x = n.x + n.x %}{% endfor %}",
                 "memory budget"));
}

TEST(JinjaBudget, SharedPartsCountWheneverTheyAreWalked) {
  const std::string build =
      "{% set n = namespace(x=[1], y=[1]) %}{% for a in range(60) %}"
      "{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}{% endfor %}";
  EXPECT_TRUE(fails_with(build + "{{ n.x == n.y }}", "step budget"));
  EXPECT_TRUE(fails_with(build + "{{ n.x }}", "budget"));
  EXPECT_TRUE(fails_with(build + "{{ n.x | tojson }}", "budget"));
  EXPECT_TRUE(fails_with(build + "{{ [n.x, n.y] | sort }}", "step budget"));
}

TEST(JinjaBudget, Output) {
  TemplateLimits limits;
  limits.max_output_bytes = 1000;
  EXPECT_TRUE(fails_with("{% for a in range(999) %}abc{% endfor %}", "output budget", limits));
}

TEST(JinjaBudget, NestedValuesAreBounded) {
  EXPECT_TRUE(
      fails_with("{% set n = namespace(x=[]) %}{% for a in range(9999) %}"
                 "{% set n.x = [n.x] %}{% endfor %}",
                 "nested too deeply"));
  EXPECT_TRUE(
      fails_with("{% set n = namespace(x=[]) %}{% for a in range(9999) %}"
                 "{% set n.x = n.x | map('string') %}{% endfor %}{{ n.x | list }}",
                 "nested too deeply"));
  // Namespaces may point at each other; that is no leak and no endless printing.
  EXPECT_TRUE(fails_with("{% set n = namespace() %}{% set n.x = n %}{{ n }}", "nested too deeply"));
  EXPECT_FALSE(
      fails("{% set n = namespace() %}{% for a in range(9999) %}"
            "{% set n.x = namespace(y=n.x) %}{% endfor %}"));
}

TEST(JinjaBudget, Recursion) {
  EXPECT_TRUE(fails_with("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested too deeply"));
  EXPECT_TRUE(
      fails_with("{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}", "nested too deeply"));
}

void* parse_deep_sources(void*) {
  const int n = 10'000;
  for (const std::string& source :
       {"{{ " + repeated("(", n) + "1" + repeated(")", n) + " }}",
        "{{ " + repeated("[", n) + repeated("]", n) + " }}", "{{ " + repeated("-", n) + "1 }}",
        "{{ " + repeated("not ", n) + "1 }}", "{{ x" + repeated(".a", n) + " }}",
        "{{ x" + repeated("|string", n) + " }}", "{{ x" + repeated("()", n) + " }}",
        "{{ 1" + repeated(" if 1 else 1", n) + " }}",
        repeated("{% if x %}", n) + repeated("{% endif %}", n),
        repeated("{% for a in x %}", n) + repeated("{% endfor %}", n)}) {
    EXPECT_TRUE(fails(source)) << source.substr(0, 30);
  }
  EXPECT_EQ(rendered("{{ 1" + repeated(" + 1", n) + " }}"), "10001");
  EXPECT_EQ(rendered("{{ 1" + repeated(" and 1", n) + " }}"), "1");
  EXPECT_TRUE(fails("{% macro f(n) %}{{ ((((f(n + 1))))) }}{% endmacro %}{{ f(0) }}"));
  return nullptr;
}

TEST(JinjaBudget, DeepSourcesNeedLittleStack) {
  // Sanitizers and unoptimised code make frames many times larger.
  constexpr size_t kStackBytes = kLargeFrames ? 8 << 20 : 512 << 10;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStackBytes), 0);
  pthread_t thread{};
  ASSERT_EQ(pthread_create(&thread, &attributes, parse_deep_sources, nullptr), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(JinjaBudget, LargeContentsPass) {
  OrderedJson context;
  context["messages"] = OrderedJson::array();
  context["messages"].push_back({{"role", "user"}, {"content", std::string(50 << 20, 'x')}});
  const auto chat_template = ChatTemplate::parse(
      "{% for m in messages %}{{ m.role ~ ': ' ~ m.content.strip().split('</think>')[-1] }}"
      "{% endfor %}",
      "t");
  EXPECT_EQ(chat_template.render(context).size(), (50U << 20) + 6);
}

TEST(JinjaErrors, NameTheTemplateAndTheLine) {
  EXPECT_EQ(rendered("a\nb{{ x | nofilter }}"), "ERROR: t:2: unknown filter 'nofilter'");
  EXPECT_EQ(rendered("a\n\n{{ raise_exception('No ' ~ 'way') }}"), "ERROR: t:3: No way");
  EXPECT_EQ(rendered("\n{{ x.y }}"), "ERROR: t:2: 'x' is undefined");
  EXPECT_EQ(rendered("{% if x %}\n\n").substr(0, 11), "ERROR: t:2:");
  EXPECT_EQ(rendered("{{ 9223372036854775807 + 1 }}"),
            "ERROR: t:1: an integer does not fit 64 bits");
}

TEST(JinjaErrors, AreOneLineOfBoundedLength) {
  EXPECT_EQ(rendered("{{ raise_exception('a\\n\\x1b[2J\\t\\x7f\\x9b é \\\\ \"') }}"),
            "ERROR: t:1: a\\n\\x1b[2J\\t\\x7f\\x9b é \\ \"");
  const std::string text = rendered("{{ raise_exception('é' * 100000) }}");
  EXPECT_EQ(text, "ERROR: t:1: " + repeated("é", 500) + "...");
}

TEST(JinjaErrors, VariablesThatAreNotUtf8AreRepaired) {
  OrderedJson context;
  context["t"] = "a\xff\xe2\x82z\xc3";
  context["d"] = OrderedJson::object();
  context["d"]["k\xff"] = 1;
  const auto shown = [&](std::string_view source) {
    return ChatTemplate::parse(source, "t").render(context);
  };
  EXPECT_EQ(shown("{{ t }}|{{ t | length }}|{{ t[1:3] }}|{{ t[::-1] }}"),
            "a\uFFFD\uFFFDz\uFFFD|5|\uFFFD\uFFFD|\uFFFDz\uFFFD\uFFFDa");
  EXPECT_EQ(shown("{{ d | tojson }}"), "{\"k\uFFFD\": 1}");
  EXPECT_EQ(shown("{{ '%c' % 55296 }}"), "\uFFFD");
}

TEST(JinjaErrors, BadBytesAreRefused) {
  EXPECT_TRUE(fails("\xff"));
  EXPECT_TRUE(fails("{{ '\xc3' }}"));
  EXPECT_EQ(rendered(std::string_view("a\0b", 3)), std::string("a\0b", 3));
}

TEST(JinjaErrors, OddContextsAreValues) {
  EXPECT_EQ(rendered("{{ messages }}", R"({"messages": []})"), "[]");
  EXPECT_TRUE(fails("{{ messages[0].role }}", R"({"messages": []})"));
  EXPECT_TRUE(fails("{{ 'a' + content }}", R"({"content": null})"));
  EXPECT_TRUE(fails("{{ big }}", R"({"big": 18446744073709551615})"));
}

}  // namespace
}  // namespace klotski
