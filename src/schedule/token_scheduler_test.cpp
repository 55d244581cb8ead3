#include "schedule/token_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

namespace klotski {
namespace {

// One layer of 8 experts, of which every token uses one.
const RoutingTraceShape kShape{"one layer", {{LayerId(0), 8, 1}}};

// Requests of kind k use the experts 2 k and 2 k + 1.
RequestShares shares_of(size_t kind) {
  RequestShares shares(8);
  shares[2 * kind] = 0.6f;
  shares[2 * kind + 1] = 0.4f;
  return shares;
}
const std::vector<RequestShares> kKinds = {shares_of(0), shares_of(1), shares_of(2), shares_of(3)};

std::vector<ScheduledRequest> waiting(std::initializer_list<size_t> kinds) {
  std::vector<ScheduledRequest> requests;
  for (const size_t kind : kinds) requests.push_back({.shares = &kKinds[kind]});
  return requests;
}

using Indices = std::vector<size_t>;

TEST(TokenScheduler, TheOldestIsAdmittedWithThoseLikeIt) {
  EXPECT_EQ(choose_requests(waiting({2, 0, 1, 2, 1, 0}), kShape, 2), (Indices{0, 3}));
  EXPECT_EQ(choose_requests(waiting({0, 1, 0, 1, 1, 0, 0, 1}), kShape, 4), (Indices{0, 2, 5, 6}));
}

// Clusters are of `room` requests: with seven requests there are three of two, and the newest, left
// over, is not looked at although it is like the oldest.
TEST(TokenScheduler, RequestsThatWouldBeLeftOverWait) {
  EXPECT_EQ(choose_requests(waiting({0, 1, 1, 0, 2, 2, 0}), kShape, 2), (Indices{0, 3}));
  EXPECT_EQ(choose_requests(waiting({0, 1, 0}), kShape, 2), (Indices{0, 1})) << "no second group";
}

TEST(TokenScheduler, WhereSomeRunTheNearestToThemAreAdmitted) {
  std::vector<ScheduledRequest> requests = waiting({3, 0, 1, 2, 1, 3});
  requests[4].runs = true;
  EXPECT_EQ(choose_requests(requests, kShape, 1), (Indices{2}));
  requests[1].runs = requests[4].runs = true;
  requests[0].runs = true;
  EXPECT_EQ(choose_requests(requests, kShape, 2), (Indices{2, 5}));
}

TEST(TokenScheduler, WhoeverWasOvertakenOftenComesFirst) {
  std::vector<ScheduledRequest> requests = waiting({0, 1, 2, 0, 2, 0});
  requests[2].overtaken = kMostOvertaken;
  EXPECT_EQ(choose_requests(requests, kShape, 2), (Indices{2, 4}));
  requests[0].runs = true;
  EXPECT_EQ(choose_requests(requests, kShape, 3), (Indices{2, 3, 5}));
  for (ScheduledRequest& request : requests) request.overtaken = kMostOvertaken;
  EXPECT_EQ(choose_requests(requests, kShape, 3), (Indices{1, 2, 3})) << "in their order";
}

// Requests of random kinds come for ever, sequences end at random: no request is overtaken by many
// more than the bound, and each is admitted once.
TEST(TokenScheduler, NobodyIsOvertakenForEver) {
  struct Request {
    ScheduledRequest scheduled;
    int number = 0;
  };
  std::mt19937 random(11);
  for (const int64_t group : {2, 5, 16}) {
    std::vector<Request> here;  // in the order in which they came
    int came = 0;
    int64_t most_overtaken = 0;
    for (int step = 0; step < 1500; ++step) {
      while (std::count_if(here.begin(), here.end(),
                           [](const Request& one) { return !one.scheduled.runs; }) < 64) {
        const size_t kind = random() % 16 == 0 ? 3 : random() % 3;
        here.push_back({{.shares = &kKinds[kind]}, came++});
      }
      std::vector<ScheduledRequest> requests;
      int64_t room = group;
      for (const Request& one : here) {
        requests.push_back(one.scheduled);
        room -= one.scheduled.runs;
      }
      if (room > 0) {
        const Indices chosen = choose_requests(requests, kShape, room);
        ASSERT_EQ(std::ssize(chosen), room);
        for (const size_t i : chosen) {
          ASSERT_FALSE(here[i].scheduled.runs);
          here[i].scheduled.runs = true;
          for (size_t older = 0; older < i; ++older) {
            if (!here[older].scheduled.runs) ++here[older].scheduled.overtaken;
          }
        }
      }
      for (const Request& one : here) {
        most_overtaken = std::max(most_overtaken, one.scheduled.overtaken);
      }
      std::erase_if(here,
                    [&](const Request& one) { return one.scheduled.runs && random() % 4 == 0; });
    }
    EXPECT_LE(most_overtaken, kMostOvertaken + group);
  }
}

TEST(TokenScheduler, TheWindowIsAtLeastTwoGroupsUnlessTheseAreHuge) {
  EXPECT_EQ(scheduled_requests(1), 64);
  EXPECT_EQ(scheduled_requests(50), 100);
  EXPECT_EQ(scheduled_requests(1000), 256);
}

}  // namespace
}  // namespace klotski
