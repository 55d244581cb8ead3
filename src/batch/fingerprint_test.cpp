#include "batch/fingerprint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace klotski {
namespace {

class FingerprintTest : public testing::Test {
 protected:
  FingerprintTest() {
    std::filesystem::copy(std::string(KLOTSKI_MODELS) + "/tiny-mixtral", folder_,
                          std::filesystem::copy_options::recursive);
  }
  ~FingerprintTest() override { std::filesystem::remove_all(folder_); }

  std::string fingerprint() const { return model_fingerprint(*open_model(folder_.string())); }
  void flip_byte(const std::string& name, int64_t offset) const {
    std::fstream file(folder_ / name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(offset, offset < 0 ? std::ios::end : std::ios::beg);
    const auto at = file.tellg();
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(at);
    file.put(byte);
  }

  std::filesystem::path folder_ = std::filesystem::path(testing::TempDir()) /
                                  (std::to_string(::getpid()) + "_fingerprint_test");
};

TEST_F(FingerprintTest, ACopyHasTheFingerprintOfTheModel) {
  EXPECT_EQ(fingerprint(), model_fingerprint(*open_model("tiny")));
  std::ofstream(folder_ / "README.txt") << "no part of the model";
  EXPECT_EQ(fingerprint(), model_fingerprint(*open_model("tiny")));
}

TEST_F(FingerprintTest, OtherWeightsAndOtherSmallFilesAreNoticed) {
  const std::string before = fingerprint();
  std::string weights;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().extension() == ".safetensors") weights = entry.path().filename();
  }
  for (const int64_t offset : {-1, -1'234'567}) {
    flip_byte(weights, offset);
    EXPECT_NE(fingerprint(), before) << offset;
    flip_byte(weights, offset);
    EXPECT_EQ(fingerprint(), before);
  }
  std::ofstream(folder_ / "config.json", std::ios::app) << " ";
  EXPECT_NE(fingerprint(), before);
}

}  // namespace
}  // namespace klotski
