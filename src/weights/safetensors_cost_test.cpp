// Time and memory that a hostile header may cost.

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>

#include "weights/counting_new.h"
#include "weights/safetensors.h"
#include "weights/testing.h"

namespace klotski {
namespace {

using testing_files::contains;
using testing_files::error_of;

#if !defined(__has_feature)
#define __has_feature(name) 0  // clang's way to ask, where gcc has __SANITIZE_*__
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(NDEBUG) || \
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr double kMaxSeconds = 120;
#else
constexpr double kMaxSeconds = 2;
#endif
// The bounds of small parts that do not grow with the header: a longest token, a few copies of it.
constexpr size_t kFixedBytes = size_t{32} << 20;

// Processor time and memory of one run of an action.
struct Cost {
  double seconds = 0;
  size_t bytes = 0;
};

template <typename Action>
Cost cost_of(const Action& action) {
  const size_t before = testing_files::restart_peak_bytes();
  const std::clock_t start = std::clock();
  action();
  return {static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC,
          testing_files::peak_bytes() - before};
}

// Runs `action` on a header and checks that it stays within 4 times the header's memory and 2 s of
// processor time. Where a machine is slower, or other programs take a core's second thread, the
// bound is 4 times what the JSON library alone takes to read the text; the least of three counts.
template <typename Action>
void expect_cheap(const std::string& header, Action action) {
  Cost cost = cost_of(action);
  double most = kMaxSeconds;
  for (int again = 0; again < 2 && cost.seconds > most; ++again) {
    const double reading = cost_of([&] { (void)nlohmann::json::accept(header); }).seconds;
    most = std::max(most, 4 * reading);
    cost.seconds = std::min(cost.seconds, cost_of(action).seconds);
  }
  const size_t used = cost.bytes + header.size();  // the header was there before
  EXPECT_LE(cost.seconds, most);
  EXPECT_LE(used, 4 * header.size() + kFixedBytes);
  ::testing::Test::RecordProperty("milliseconds", static_cast<int>(cost.seconds * 1000));
  ::testing::Test::RecordProperty(
      "percent_of_header", static_cast<int>(used * 100 / std::max<size_t>(header.size(), 1)));
}

void expect_cheap_refusal(const std::string& header, const char* message) {
  expect_cheap(header, [&] {
    EXPECT_TRUE(contains(
        error_of([&] { parse_safetensors_header(header, 8 + header.size(), "f"); }), message))
        << message;
  });
}

TEST(SafetensorsCost, MillionTensors) {
  constexpr size_t kCount = 1'000'000;
  std::vector<uint32_t> order(kCount);
  for (size_t i = 0; i < kCount; ++i) order[i] = static_cast<uint32_t>(i);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  std::string header = "{";
  for (const uint32_t i : order) {
    header += fmt::format(R"({}"{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})",
                          header.size() > 1 ? "," : "", i, i, i + 1);
  }
  header += "}";
  expect_cheap(header, [&] {
    EXPECT_EQ(parse_safetensors_header(header, 8 + header.size() + kCount, "f").size(), kCount);
  });
}

TEST(SafetensorsCost, DeepNesting) {
  expect_cheap_refusal(std::string(100'000, '['), "found an array");
  std::string objects = "{";
  for (int i = 0; i < 100'000; ++i) objects += "\"dtype\":{";
  expect_cheap_refusal(objects, "found an object");
}

TEST(SafetensorsCost, LargeTokens) {
  constexpr size_t kLarge = 50'000'000;
  expect_cheap_refusal("{\"" + std::string(kLarge, 'n') + "\":1}", "token above");
  expect_cheap_refusal("{\"" + std::string(kLarge, 'n'), "token above");
  expect_cheap_refusal("{\"a\":" + std::string(kLarge, '9'), "token above");
  expect_cheap_refusal("{\"a\":" + std::string(kLarge, '\n') + "x", "token above");
  expect_cheap_refusal("{\"" + std::string(5000, 'n') + "\":{}}", "at most 4096 bytes");
  expect_cheap_refusal(std::string(kLarge, '\n') + "x", "not valid JSON");
}

TEST(SafetensorsCost, ManyBraces) {
  // Braces inside a name must not be taken for a number of tensors to reserve room for.
  std::string header = "{\"";
  for (int i = 0; i < 1000; ++i) header += std::string(40'000, '{') + "\":1,\"";
  expect_cheap_refusal(header, "at most 4096 bytes");
  expect_cheap_refusal(std::string(40'000'000, '{'), "not valid JSON");
}

TEST(SafetensorsCost, ManyMetadataKeys) {
  std::string header = "{\"__metadata__\":{";
  for (int i = 0; i < 1'000'000; ++i) header += fmt::format("{}\"{}\":\"\"", i > 0 ? "," : "", i);
  expect_cheap_refusal(header + "}}", "at most 65536 keys");
}

TEST(SafetensorsCost, LongMetadataTextIsAccepted) {
  const std::string header =
      "{\"__metadata__\":{\"picture\":\"" + std::string(3'000'000, 'p') + "\"}}";
  EXPECT_TRUE(parse_safetensors_header(header, 8 + header.size(), "f").empty());
}

}  // namespace
}  // namespace klotski
