// Real chat templates against the results of Python's Jinja2 for these conversations.
#include <gtest/gtest.h>

#include <string>

#include "text/chat_template.h"
#include "text/gzip.h"

namespace klotski {
namespace {

OrderedJson read_json(const std::string& name) {
  const std::string path = std::string(KLOTSKI_TEST_DATA) + "/chat_templates/" + name;
  return parse_ordered_json(read_text_or_gzip(path, 64 * kMiB), name);
}

// The moment at which the expectations were made.
std::tm frozen_clock() {
  std::tm time{};
  time.tm_year = 2025 - 1900;
  time.tm_mday = 15;
  time.tm_hour = 12;
  time.tm_min = 34;
  time.tm_sec = 56;
  time.tm_wday = 3;
  time.tm_yday = 14;
  return time;
}

OrderedJson make_context(const OrderedJson& conversation, const OrderedJson& expected,
                         const OrderedJson& test_case) {
  OrderedJson context;
  context["messages"] = conversation["messages"];
  context["tools"] = conversation.contains("tools") ? conversation["tools"] : OrderedJson();
  context["documents"] = nullptr;
  context["add_generation_prompt"] = test_case["add_generation_prompt"];
  context["bos_token"] = expected["bos_token"];
  context["eos_token"] = expected["eos_token"];
  for (const auto& [name, value] : test_case["kwargs"].items()) context[name] = value;
  return context;
}

// The text, or "error" where the template or the conversation is refused.
std::string render(const ChatTemplate& chat_template, const OrderedJson& context) {
  try {
    return "text: " + chat_template.render(context, frozen_clock());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_model);
    return "error";
  }
}

TEST(ChatTemplateGolden, EveryRenderedCaseIsEqual) {
  const OrderedJson templates = read_json("templates.json.gz");
  const OrderedJson conversations = read_json("conversations.json.gz");
  size_t cases = 0;
  for (const OrderedJson& expected : read_json("rendered.json.gz")) {
    const auto name = expected["template"].get<std::string>();
    const auto chat_template = ChatTemplate::parse(templates[name].get<std::string>(), name);
    for (const OrderedJson& test_case : expected["cases"]) {
      const auto conversation = test_case["conv"].get<std::string>();
      const OrderedJson context = make_context(conversations[conversation], expected, test_case);
      const std::string wanted =
          test_case.contains("error") ? "error" : "text: " + test_case["output"].get<std::string>();
      EXPECT_EQ(render(chat_template, context), wanted) << name << ", " << conversation;
      ++cases;
    }
  }
  EXPECT_EQ(cases, 4088U);
}

TEST(ChatTemplateGolden, RaisedMessagesAreTheTemplatesOwn) {
  const OrderedJson templates = read_json("templates.json.gz");
  const OrderedJson conversations = read_json("conversations.json.gz");
  for (const OrderedJson& expected : read_json("rendered.json.gz")) {
    const auto name = expected["template"].get<std::string>();
    const auto chat_template = ChatTemplate::parse(templates[name].get<std::string>(), name);
    for (const OrderedJson& test_case : expected["cases"]) {
      if (!test_case.contains("error") || test_case["error"] != "TemplateError") continue;
      const auto conversation = test_case["conv"].get<std::string>();
      try {
        chat_template.render(make_context(conversations[conversation], expected, test_case));
        ADD_FAILURE() << name << ", " << conversation;
      } catch (const Error& error) {
        const auto message = test_case["message"].get<std::string>();
        EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
      }
    }
  }
}

// Templates that the expectations leave out parse as well.
TEST(ChatTemplateGolden, EveryTemplateParses) {
  const OrderedJson templates = read_json("templates.json.gz");
  EXPECT_EQ(templates.size(), 77U);
  for (const auto& [name, source] : templates.items()) {
    EXPECT_NO_THROW(ChatTemplate::parse(source.get<std::string>(), name)) << name;
  }
}

}  // namespace
}  // namespace klotski
