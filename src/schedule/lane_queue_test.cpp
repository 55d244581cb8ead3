#include "schedule/lane_queue.h"

#include <gtest/gtest.h>

#include <random>

namespace klotski {
namespace {

std::vector<TaskNumber> in_order(const LaneQueue& queue) {
  std::vector<TaskNumber> numbers;
  for (size_t i = 0; i < queue.size(); ++i) numbers.push_back(queue[i]);
  return numbers;
}

TEST(LaneQueue, TasksOfOnePriorityKeepProgramOrder) {
  LaneQueue queue;
  for (TaskNumber number = 0; number < 5; ++number) queue.push(number, 0);
  EXPECT_EQ(in_order(queue), std::vector<TaskNumber>({0, 1, 2, 3, 4}));
  EXPECT_EQ(queue.next_priority(0), 5u) << "only the first may be taken";
}

TEST(LaneQueue, HigherPrioritiesOvertake) {
  LaneQueue queue;
  const std::vector<float> priorities = {0, 0.5, 0, 2, 0.5, -1};
  for (size_t i = 0; i < priorities.size(); ++i) {
    queue.push(static_cast<TaskNumber>(i), priorities[i]);
  }
  EXPECT_EQ(in_order(queue), std::vector<TaskNumber>({3, 1, 4, 0, 2, 5}));
  EXPECT_EQ(queue.next_priority(0), 1u);
  EXPECT_EQ(queue.next_priority(1), 3u);
  EXPECT_EQ(queue.next_priority(4), 5u);
  EXPECT_EQ(queue.next_priority(5), 6u);
}

TEST(LaneQueue, WhatIsTakenOutIsGone) {
  LaneQueue queue;
  for (TaskNumber number = 0; number < 6; ++number) queue.push(number, 0);
  queue.erase(1, 3);
  EXPECT_TRUE(queue.has(4));
  queue.remove(4);
  EXPECT_FALSE(queue.has(4));
  queue.remove(1);  // not there
  EXPECT_EQ(in_order(queue), std::vector<TaskNumber>({0, 3, 5}));
}

// Against a stable sort.
TEST(LaneQueue, RandomPriorities) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 500; ++trial) {
    LaneQueue queue;
    std::vector<std::pair<float, TaskNumber>> expected;  // the negative priority first
    for (TaskNumber number = 0; number < 20; ++number) {
      const auto priority = static_cast<float>(random() % 4);
      queue.push(number, priority);
      expected.emplace_back(-priority, number);
    }
    std::sort(expected.begin(), expected.end());
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(queue[i], expected[i].second);
  }
}

}  // namespace
}  // namespace klotski
