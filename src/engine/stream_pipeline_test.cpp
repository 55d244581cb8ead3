// The pipeline on a device that works beside the program: copies and operations happen at any time
// that the declared order leaves open. A wait that is missing shows as another result, and under
// the thread sanitizer as a race.

#include <gtest/gtest.h>

#include "engine/testing/device_runs.h"

namespace klotski {
namespace {

class StreamPipeline : public DeviceRuns {
 protected:
  StreamPipeline() : DeviceRuns(/*in_streams=*/true) {}
};

TEST_P(StreamPipeline, EqualsTheResidentRunWhateverTheDeviceDoesWhen) {
  for (int trial = 0; trial < trials(30); ++trial) {
    SCOPED_TRACE(trial);
    const Texts texts = random_texts(random_, 1 + random_() % 6, test_.description.vocabulary, 40);
    ASSERT_NO_FATAL_FAILURE(equals_resident_run(texts, random_division(texts)));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, StreamPipeline,
                         ::testing::Values("mixtral", "qwen2_moe", "gpt_oss", "deepseek_v3",
                                           "variants/qwen3_next", kDrill));

}  // namespace
}  // namespace klotski
