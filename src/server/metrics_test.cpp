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
  metrics.delivered_after(0.002);
  metrics.set_engine({.running = 2,
                      .waiting = 3,
                      .counters = {.preemptions = 6,
                                   .prefix = {.hits = 8, .tokens = 128},
                                   .drafts = {.drafted = 40, .accepted = 25}},
                      .prefetch = {.useful = 30, .late = 20, .wasted = 10},
                      .lanes = {{"disk \"a\"\n", 7}},
                      .memories = {{"RAM", 5, 9}}});
  const std::string text = metrics.prometheus(4);
  EXPECT_NE(text.find("klotski_requests_total{path=\"/v1/completions\",status=\"200\"} 2\n"),
            std::string::npos);
  EXPECT_NE(text.find("klotski_lane_bytes_total{lane=\"disk \\\"a\\\"\"} 7\n"), std::string::npos);
  for (const char* sample :
       {"klotski_queue 3\n", "klotski_preemptions_total 6\n", "klotski_prefix_hits_total 8\n",
        "klotski_prefix_tokens_total 128\n", "klotski_drafted_tokens_total 40\n",
        "klotski_accepted_tokens_total 25\n", "klotski_prefetch_bytes_total{use=\"late\"} 20\n",
        "klotski_delivery_seconds_bucket{le=\"0.0025\"} 1\n"}) {
    EXPECT_NE(text.find(sample), std::string::npos) << sample;
  }
  EXPECT_NE(text.find("klotski_connections 4\n"), std::string::npos);
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    EXPECT_TRUE(text.compare(at, 8, "klotski_") == 0 || text.compare(at, 2, "# ") == 0);
  }
}

// The document of the dashboard.
TEST(Metrics, StatsHaveTheLatestSpansAndTheAccounts) {
  Metrics metrics;
  metrics.set_engine({.counters = {.preemptions = 6,
                                   .prefix = {.hits = 8, .tokens = 128},
                                   .drafts = {.drafted = 40, .accepted = 25}},
                      .predictor = {.name = "path", .foretold = 10, .participated = 7},
                      .kv = {.used_bytes = 1, .kept_bytes = 2, .limit_bytes = 3},
                      .lanes = {{"compute", 0, 1.5}},
                      .spans = {{0, "load expert", 10, 25}},
                      .memories = {{"RAM", 5, 9, {{"KV cache", 3}}}}});
  const OrderedJson stats = metrics.stats({});
  EXPECT_EQ(stats["spans"], OrderedJson::parse(R"([[0, "load expert", 10, 25]])"));
  EXPECT_EQ(stats["lanes"][0]["busy_seconds"], 1.5);
  EXPECT_EQ(stats["memories"][0]["uses"][0]["kind"], "KV cache");
  EXPECT_EQ(stats["predictor"]["participated"], 7);
  EXPECT_EQ(stats["prefix"]["tokens"], 128);
  EXPECT_EQ(stats["drafts"]["accepted"], 25);
  EXPECT_EQ(stats["kv"]["kept_bytes"], 2);
  EXPECT_EQ(stats["preemptions"], 6);
}

}  // namespace
}  // namespace klotski
