// Templates that want too much, and templates that break out: all end in an Error, quickly.
#include <gtest/gtest.h>
#include <pthread.h>

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
