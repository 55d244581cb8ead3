#include "hardware/profile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "base/error.h"
#include "base/json.h"

namespace klotski {
namespace {

TEST(Curve, StraightLinesBetweenPoints) {
  const Curve curve({1, 2, 4}, {10, 12, 20});
  EXPECT_DOUBLE_EQ(curve.at(1), 10);
  EXPECT_DOUBLE_EQ(curve.at(1.5), 11);
  EXPECT_DOUBLE_EQ(curve.at(2), 12);
  EXPECT_DOUBLE_EQ(curve.at(3), 16);
  EXPECT_DOUBLE_EQ(curve.at(4), 20);
}

TEST(Curve, BelowTheFirstAsLongAsTheFirst) {
  const Curve curve({8, 16}, {3, 5});
  for (const double size : {7.9, 1.0, 0.0, -1.0}) EXPECT_DOUBLE_EQ(curve.at(size), 3);
}

TEST(Curve, BeyondTheLastAlongTheLastLine) {
  EXPECT_DOUBLE_EQ(Curve({1, 2, 4}, {10, 12, 20}).at(8), 36);
  EXPECT_DOUBLE_EQ(Curve({1, 2, 4}, {10, 30, 20}).at(8), 20);  // falling: not below the last
  EXPECT_DOUBLE_EQ(Curve({4}, {2}).at(12), 6);
  EXPECT_DOUBLE_EQ(Curve({4}, {2}).at(1), 2);
}

TEST(Curve, NothingMeasuredTakesNoTime) {
  EXPECT_TRUE(Curve().empty());
  EXPECT_DOUBLE_EQ(Curve().at(5), 0);
}

TEST(Curve, RefusesWhatIsNoCurve) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_THROW(Curve({}, {}), Error);
  EXPECT_THROW(Curve({1, 2}, {1}), Error);
  EXPECT_THROW(Curve({1, 1}, {1, 1}), Error);
  EXPECT_THROW(Curve({2, 1}, {1, 1}), Error);
  EXPECT_THROW(Curve({0, 1}, {1, 1}), Error);
  EXPECT_THROW(Curve({1, infinity}, {1, 1}), Error);
  EXPECT_THROW(Curve({1}, {0}), Error);
  EXPECT_THROW(Curve({1}, {-1}), Error);
  EXPECT_THROW(Curve({1}, {std::nan("")}), Error);
  EXPECT_THROW(Curve({1}, {infinity}), Error);
}

Curve random_curve(std::mt19937& random) {
  std::uniform_real_distribution<double> step(0.1, 3.0);
  std::vector<double> sizes;
  std::vector<double> seconds;
  const int points = std::uniform_int_distribution<int>(1, 9)(random);
  double size = 0.0;
  for (int i = 0; i < points; ++i) {
    sizes.push_back(size += step(random));
    seconds.push_back(step(random) * 1e-3);
  }
  return {sizes, seconds};
}

TEST(Curve, StaysBetweenItsNeighboursAndNeverFallsAtTheEnd) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const Curve curve = random_curve(random);
    for (size_t i = 0; i < curve.sizes().size(); ++i) {
      EXPECT_DOUBLE_EQ(curve.at(curve.sizes()[i]), curve.seconds()[i]);
      if (i == 0) continue;
      const double middle = curve.at((curve.sizes()[i - 1] + curve.sizes()[i]) / 2);
      EXPECT_NEAR(middle, (curve.seconds()[i - 1] + curve.seconds()[i]) / 2, 1e-12);
    }
    double before = curve.seconds().back();
    for (int i = 1; i < 10; ++i) {
      const double after = curve.at(curve.sizes().back() + i);
      EXPECT_GE(after, before);
      before = after;
    }
  }
}

Profile random_profile(std::mt19937& random) {
  Profile profile;
  profile.machine = {
      .processors = {{.name = "neon_bf16",
                      .threads = 2,
                      .memory_bytes_per_second = 5.3e10,
                      .takes_while_reading = 1.0 / 7 + 1,
                      .takes_while_finding_memory = 1.7}},
      .disks = {{.rates = {{1 << 20, 8, 5.1e9}, {1 << 24, 4, 6.2e9}, {1 << 18, 1, 1.0 / 3 + 1}},
                 .bytes_per_second = 4.9e9,
                 .bytes_per_second_while_computing = 1.0 / 3 + 4e9,
                 .bytes_per_second_into_new_memory = 1.3e9}}};
  for (int kind = 0; kind < 2; ++kind) {
    LayerProfile layer;
    for (Curve* curve : {&layer.attention_products, &layer.attend_decode, &layer.attend_prefill,
                         &layer.route, &layer.expert, &layer.expert_arranged, &layer.combine}) {
      *curve = random_curve(random);
    }
    profile.model.kinds.push_back(layer);
  }
  profile.model.kind_of_layer = {0, 1, 1, 0};
  profile.model.embed = random_curve(random);
  profile.model.logits = random_curve(random);
  return profile;
}

void add_device(MachineProfile& machine, std::mt19937& random, uint8_t number) {
  const TierId tier{TierKind::compute, number};
  machine.processors.push_back({.tier = tier, .name = "a device"});
  LinkProfile link{.to = tier};
  for (const LinkCurve& one : kLinkCurves) link.*one.curve = random_curve(random);
  link.rows_take_while_copying = 1.0 / 7 + 1;
  link.takes_while_computing = 1.0 / 9 + 1;
  machine.links.push_back(link);
}

Profile random_device_profile(std::mt19937& random) {
  Profile profile = random_profile(random);
  profile.machine.cpu().tier = kHostTier;
  profile.machine.cpu().takes_while_copying = 1.0 / 3 + 1;
  add_device(profile.machine, random, 0);
  for (LayerProfile& layer : profile.model.kinds) {
    layer.expert_on_cpu = random_curve(random);
    layer.attend_decode_on_cpu = random_curve(random);
  }
  return profile;
}

void expect_read_as_written(const Profile& profile) {
  const auto read = read_profile(write_profile(profile, "a machine"), "a machine");
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(*read, profile);
}

TEST(Profile, WhatIsWrittenIsReadBitForBit) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    expect_read_as_written(random_profile(random));
    expect_read_as_written(random_device_profile(random));
  }
}

TEST(Profile, ASecondDeviceIsOneMoreEntry) {
  std::mt19937 random(12);
  Profile profile = random_device_profile(random);
  add_device(profile.machine, random, 1);
  expect_read_as_written(profile);
  const TierId second{TierKind::compute, 1};
  EXPECT_EQ(&profile.machine.link(kHostTier, second), &profile.machine.links[1]);
  EXPECT_TRUE(profile.machine.link(second, kHostTier).weights.empty()) << "there is none";
}

TEST(Profile, BesideADeviceTheCpuMayBeUnknown) {
  std::mt19937 random(7);
  Profile profile = random_device_profile(random);
  profile.model.kinds[0].expert_on_cpu = {};  // a layer without a choice of experts
  expect_read_as_written(profile);
  for (LayerProfile& layer : profile.model.kinds) {
    layer.expert_on_cpu = layer.attend_decode_on_cpu = {};
  }
  expect_read_as_written(profile);
}

TEST(Profile, WithoutADeviceNothingIsBesideIt) {
  std::mt19937 random(8);
  Profile profile = random_device_profile(random);
  profile.machine.processors.pop_back();
  const auto read = read_profile(write_profile(profile, "f"), "f");
  ASSERT_TRUE(read.has_value());
  for (const LayerProfile& layer : read->model.kinds) {
    EXPECT_FALSE(layer.expert.empty());
    EXPECT_TRUE(layer.expert_on_cpu.empty());
    EXPECT_TRUE(layer.attend_decode_on_cpu.empty());
  }
}

TEST(Profile, AttentionToAnEncoderIsKeptWhereItWasMeasured) {
  std::mt19937 random(9);
  Profile profile = random_profile(random);
  profile.model.kinds[1].attend_encoded = random_curve(random);
  expect_read_as_written(profile);
}

TEST(Profile, WithoutADiskItsRateMayBeZero) {
  std::mt19937 random(6);
  Profile profile = random_profile(random);
  profile.machine.disk().bytes_per_second = 0.0;
  EXPECT_FALSE(read_profile(write_profile(profile, "f"), "f"));
  profile.machine.disk().rates.clear();
  const auto read = read_profile(write_profile(profile, "f"), "f");
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(*read, profile);
}

TEST(Profile, OneOfSomethingElseIsNotUsed) {
  std::mt19937 random(4);
  const std::string text = write_profile(random_profile(random), "a machine");
  EXPECT_FALSE(read_profile(text, "another"));
  EXPECT_FALSE(read_profile(text, ""));
}

TEST(Profile, ABrokenOneIsNotUsed) {
  std::mt19937 random(5);
  const std::string text = write_profile(random_profile(random), "f");
  for (size_t length = 0; length + 2 < text.size(); length += 7) {
    EXPECT_FALSE(read_profile(text.substr(0, length), "f")) << length;
  }
  const Json whole = Json::parse(text);
  const auto refused = [&](const char* place, const Json& value) {
    Json changed = whole;
    changed[Json::json_pointer(place)] = value;
    EXPECT_FALSE(read_profile(changed.dump(), "f")) << place << " " << value;
  };
  refused("/format", 3);
  refused("/format", "1");
  refused("/machine", nullptr);
  refused("/machine/processors", Json::array());
  refused("/machine/processors/0/tier", "tape");
  refused("/machine/processors/0/threads", 0);
  refused("/machine/processors/0/memory_bytes_per_second", -1);
  refused("/machine/links", 3);
  refused("/machine/disks", Json::array());
  refused("/machine/disks/0/rates", 3);
  refused("/machine/disks/0/rates/0", "x");
  refused("/machine/disks/0/rates/0/queue_depth", 0);
  refused("/model/kinds", nullptr);
  refused("/model/kinds/0", 1);
  refused("/model/kinds/0/route", nullptr);
  refused("/model/kinds/0/expert/seconds", Json::array());
  refused("/model/kinds/0/expert/seconds/0", 0);
  refused("/model/kinds/1/combine/sizes/0", -1);
  refused("/model/kind_of_layer/0", 2);
  refused("/model/kind_of_layer/0", -1);
  refused("/model/kind_of_layer", nullptr);
  refused("/model/logits/sizes", "1");
}

TEST(Profile, ABrokenOneOfADeviceIsNotUsed) {
  std::mt19937 random(9);
  const Json whole = Json::parse(write_profile(random_device_profile(random), "f"));
  const auto read = [](const Json& document) { return read_profile(document.dump(), "f"); };
  EXPECT_TRUE(read(whole));
  const auto refused = [&](const char* place, const Json& value) {
    Json changed = whole;
    changed[Json::json_pointer(place)] = value;
    EXPECT_FALSE(read(changed)) << place << " " << value;
  };
  refused("/format", 8);
  refused("/machine/links", Json::array());
  refused("/machine/links/0/from", "device");
  for (const char* curve :
       {"/machine/links/0/weights", "/machine/links/0/rows_up", "/machine/links/0/rows_down",
        "/model/kinds/0/expert_on_cpu", "/model/kinds/1/attend_decode_on_cpu"}) {
    const std::string place(curve);
    for (const Json& value : {Json(), Json(1), Json::array(), Json::object()}) {
      refused(curve, value);
    }
    refused((place + "/sizes").c_str(), Json::array());
    refused((place + "/seconds").c_str(), nullptr);
    refused((place + "/seconds/0").c_str(), 0);
    refused((place + "/seconds/0").c_str(), 1e300);
    refused((place + "/sizes/0").c_str(), "1");
    Json absent = whole;
    const Json::json_pointer at(place);
    absent[at.parent_pointer()].erase(at.back());
    EXPECT_FALSE(read(absent)) << place;
  }
  for (const char* ratio :
       {"/machine/links/0/rows_take_while_copying", "/machine/processors/0/takes_while_copying",
        "/machine/links/0/takes_while_computing"}) {
    for (const Json& value : {Json(0), Json(0.99), Json(-1), Json(1e300), Json("1"), Json()}) {
      refused(ratio, value);
    }
  }
  const Json nothing{{"sizes", Json::array()}, {"seconds", Json::array()}};
  refused("/machine/links/0/weights", nothing);
  refused("/model/kinds/0/expert", nothing);
}

}  // namespace
}  // namespace klotski
