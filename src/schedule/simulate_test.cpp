#include "schedule/simulate.h"

#include <gtest/gtest.h>

#include "schedule/testing.h"

namespace klotski {
namespace {

using std::chrono::nanoseconds;

// The next pass reads the keys and values that a pass stores; weights that come ahead belong to it
// already.
TEST(Simulation, APassEndsWhenItsKeysAreStored) {
  Timeline timeline(0);
  Simulation simulation(
      [](const Task& played) {
        if (played.work == Work::store_kv) return nanoseconds(300);
        return nanoseconds(played.work == Work::load ? 1000 : 100);
      },
      [](LayerId, int32_t) { return std::vector<ExpertId>{}; }, timeline);
  simulation.begin_pass();
  simulation.submit(
      {task_of(Work::attention, Lane::kCompute, {}, {{Place::stage, 0}}),
       task_of(Work::store_kv, Lane::kKvOut, {{Place::stage, 0}}, {}),
       task_of(Work::load, Lane::kToDevice, {}, {{Place::slot, 0, UnitKind::expert}})});
  EXPECT_EQ(simulation.pass_end(), nanoseconds(400));
  EXPECT_EQ(simulation.end(), nanoseconds(1000));
}

}  // namespace
}  // namespace klotski
