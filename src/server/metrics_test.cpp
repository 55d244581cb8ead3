#include "server/metrics.h"

#include <gtest/gtest.h>

namespace klotski {
namespace {

TEST(Metrics, AHistogramCountsCumulatively) {
  DurationHistogram histogram;
  for (const double seconds : {0.0005, 0.001, 0.003, 100.0}) histogram.add(seconds);
  const std::string text = histogram.text("x");
  EXPECT_NE(text.find("x_bucket{le=\"0.001\"} 2\n"), std::string::npos);
  EXPECT_NE(text.find("x_bucket{le=\"0.005\"} 3\n"), std::string::npos);
  EXPECT_NE(text.find("x_bucket{le=\"60\"} 3\n"), std::string::npos);
  EXPECT_NE(text.find("x_bucket{le=\"+Inf\"} 4\n"), std::string::npos);
  EXPECT_NE(text.find("x_count 4\n"), std::string::npos);
}

TEST(Metrics, SpeedIsThatOfTheLastSeconds) {
  Metrics metrics;
  const Metrics::Clock::time_point start{};
  metrics.count_tokens(100, start);
  metrics.count_tokens(50, start + std::chrono::seconds(4));
  EXPECT_EQ(metrics.stats(start + std::chrono::seconds(4))["tokens_per_second"], 30.0);
  EXPECT_EQ(metrics.stats(start + std::chrono::seconds(8))["tokens_per_second"], 10.0);
  EXPECT_EQ(metrics.stats(start + std::chrono::seconds(20))["tokens_per_second"], 0.0);
  EXPECT_EQ(metrics.stats(start)["generated_tokens"], 150);
}

TEST(Metrics, EveryLineIsASampleOrAComment) {
  Metrics metrics;
  metrics.count_response("/v1/completions", 200);
  metrics.count_response("/v1/completions", 200);
  metrics.set_engine(
      {.running = 2, .waiting = 3, .lanes = {{"disk \"a\"\n", 7}}, .memories = {{"RAM", 5, 9}}});
  const std::string text = metrics.prometheus(4);
  EXPECT_NE(text.find("klotski_requests_total{path=\"/v1/completions\",status=\"200\"} 2\n"),
            std::string::npos);
  EXPECT_NE(text.find("klotski_lane_bytes_total{lane=\"disk \\\"a\\\"\"} 7\n"), std::string::npos);
  EXPECT_NE(text.find("klotski_queue 3\n"), std::string::npos);
  EXPECT_NE(text.find("klotski_connections 4\n"), std::string::npos);
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    EXPECT_TRUE(text.compare(at, 8, "klotski_") == 0 || text.compare(at, 2, "# ") == 0);
  }
}

}  // namespace
}  // namespace klotski
