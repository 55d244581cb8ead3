#include "base/json.h"

#include <gtest/gtest.h>

namespace klotski {
namespace {

std::string error_of(std::string_view text) {
  try {
    parse_json(text, "file.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_model);
    return error.what();
  }
  return "";
}

TEST(ParseJson, ReadsDocumentsOfEveryKind) {
  EXPECT_EQ(parse_json(R"( {"a":[1,-2,2.5,"x",null,true,{}]} )", "f").dump(),
            R"({"a":[1,-2,2.5,"x",null,true,{}]})");
  EXPECT_EQ(parse_ordered_json(R"({"b":1,"a":2})", "f").dump(), R"({"b":1,"a":2})");
}

TEST(ParseJson, RefusesWhatIsNotStrictJson) {
  EXPECT_NE(error_of("\xEF\xBB\xBF{}").find("byte-order mark"), std::string::npos);
  EXPECT_NE(error_of(R"({"a":1,"a":2})").find("'a' appears twice"), std::string::npos);
  EXPECT_NE(error_of("{} x").find("not valid JSON"), std::string::npos);
  EXPECT_NE(error_of("{\"a\":\"\xFF\"}").find("not valid JSON"), std::string::npos);
  EXPECT_NE(error_of("").find("not valid JSON"), std::string::npos);
  EXPECT_NE(error_of(std::string_view("{}\0junk", 7)).find("NUL at byte 2"), std::string::npos);
  for (const std::string& text :
       {std::string("{"), std::string("[1,]"), std::string("{\"a\" 1}")}) {
    EXPECT_EQ(error_of(text).find('\n'), std::string::npos) << text;
  }
}

TEST(ParseJson, DepthIsBoundedWhateverTheLength) {
  EXPECT_EQ(error_of(std::string(64, '[') + std::string(64, ']')), "");
  EXPECT_NE(error_of(std::string(65, '[') + std::string(65, ']')).find("64 levels"),
            std::string::npos);
  EXPECT_NE(error_of(std::string(1'000'000, '[')).find("64 levels"), std::string::npos);
}

TEST(ParseJson, OrderedObjectsHaveABoundOnTheirKeys) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) text += fmt::format("{}\"{}\":0", i ? "," : "", i);
  text += "}";
  EXPECT_THROW(parse_ordered_json(text, "f"), Error);
  EXPECT_EQ(parse_json(text, "f").size(), 100'000u);
}

TEST(JsonFields, NamesTheFieldTheExpectedAndTheFound) {
  const Json json = parse_json(R"({"heads":0,"eps":"x","inner":{"factor":-1},"none":null})", "f");
  const JsonFields fields(json, "config.json");
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message([&] { fields.integer("heads", 1, 9); }),
            "config.json: heads: expected an integer from 1 to 9, found 0");
  EXPECT_EQ(message([&] { fields.number("eps", 0, 1); }),
            "config.json: eps: expected a number from 0 to 1, found 'x'");
  EXPECT_EQ(message([&] { fields.object("inner")->number("factor", 0, 9); }),
            "config.json: inner.factor: expected a number from 0 to 9, found -1");
  EXPECT_EQ(message([&] { fields.integer("none", 1, 9); }),
            "config.json: none: expected an integer from 1 to 9, found nothing");
  EXPECT_EQ(fields.integer_or("none", 7, 1, 9), 7);
}

TEST(JsonFields, IntegersMustBeWrittenAsIntegers) {
  for (const char* text : {R"({"n":1.0})", R"({"n":1e3})", R"({"n":18446744073709551615})",
                           R"({"n":123456789012345678901234})", R"({"n":true})"}) {
    const Json json = parse_json(text, "f");
    EXPECT_THROW(JsonFields(json, "f").integer("n", 0, INT64_MAX), Error) << text;
  }
}

}  // namespace
}  // namespace klotski
