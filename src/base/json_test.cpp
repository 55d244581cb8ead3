#include "base/json.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include "base/bytes.h"
#include "base/testing.h"

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

std::string repeated(std::string_view piece, int64_t times) {
  std::string text;
  for (int64_t i = 0; i < times; ++i) text += piece;
  return text;
}

TEST(ParseJson, KeysThatAreNotWantedAreCheckedAndLeftOut) {
  const auto parsed = [](std::string_view text) {
    return parse_ordered_json(text, "f", ErrorKind::usage, {.max_depth = 4, .wanted = {"b", "d"}})
        .dump();
  };
  EXPECT_EQ(parsed(R"({"a":{"b":[1,{}]},"b":{"a":[2]},"c":"x","d":3,"e":[]})"),
            R"({"b":{"a":[2]},"d":3})");
  EXPECT_EQ(parsed(R"({"a":{"x":1,"x":2},"a":3})"), "{}");  // nothing reads them
  EXPECT_EQ(parsed(R"([{"a":1}])"), R"([{"a":1}])");        // no outermost object
  for (const char* bad : {R"({"a":[1,]})", "{\"a\":\"\xFF\"}", R"({"a":[[[[1]]]]})",
                          R"({"b":1,"b":2})", R"({"a":1 "b":2})", R"({"a":)"}) {
    EXPECT_THROW(parsed(bad), Error) << bad;
  }
}

TEST(ParseJson, MemoryIsBoundedAndTheNeedIsKnown) {
  const std::string dense = "{\"x\":[" + repeated("{},", 100'000) + "0],\"y\":1}";
  uint64_t bytes = 0;
  parse_json(dense, "f", ErrorKind::usage, {.bytes = &bytes});
  EXPECT_GT(bytes, 6 * kMiB);
  try {
    parse_json(dense, "file.json", ErrorKind::usage, {.memory = kMiB});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::does_not_fit);
    const std::string needed = format_bytes(bytes);
    EXPECT_EQ(std::string(error.what()).find("file.json: reading it needs at least " + needed), 0u)
        << error.what();
  }
  EXPECT_EQ(parse_json(dense, "f", ErrorKind::usage, {.memory = bytes}).size(), 2u);
  const JsonReading reading{.wanted = {"y"}, .memory = kMiB, .bytes = &bytes};
  EXPECT_EQ(parse_json(dense, "f", ErrorKind::usage, reading).dump(), R"({"y":1})");
  EXPECT_LT(bytes, 2 * dense.size() + kKiB);  // in the lexer
  EXPECT_THROW(parse_json(dense, "f", ErrorKind::usage, {.wanted = {"y"}, .memory = dense.size()}),
               Error);
  const std::string text = "\"" + std::string(kMiB, 'x') + "\"";
  EXPECT_THROW(parse_json(text, "f", ErrorKind::usage, {.memory = kMiB}), Error);
}

// Bytes that the count left out would be memory that nobody planned.
TEST(ParseJson, TheCountedBytesAreThoseThatAreTaken) {
  for (const char* piece : {"[],", "{},", "1,", R"("a text of some length",)", R"({"a":1},)"}) {
    const std::string text = "[" + repeated(piece, 50'000) + "0]";
    uint64_t counted = 0;
    const struct mallinfo2 before = ::mallinfo2();
    const OrderedJson json = parse_ordered_json(text, "f", ErrorKind::usage, {.bytes = &counted});
    const struct mallinfo2 after = ::mallinfo2();
    const uint64_t taken = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
    if (taken == 0) GTEST_SKIP() << "the allocator does not count";
    EXPECT_GE(counted, taken) << piece;
    EXPECT_LE(counted, 6 * taken) << piece;
  }
}

TEST(ParseJson, OrderedObjectsTakeLinearTime) {
  EXPECT_TRUE(takes_linear_time(
      [](int64_t keys) {
        std::string text = "{\"\":0";
        for (int64_t i = 0; i < keys; ++i) text += fmt::format(",\"{:012}\":0", i);
        parse_ordered_json(text + "}", "f");
      },
      1000));
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
