#include "engine/testing/models.h"

#include "model/compact_model.h"
#include "weights/testing.h"

namespace klotski {

std::string compact_model_folder() {
  static const testing_files::ScratchFolder kHome;
  static const std::string kFolder = [] {
    const TestModel plain(plain_model(kCompact));
    const std::filesystem::path folder = kHome.path() / "model";
    compact_model(plain.description, plain.checkpoint, folder,
                  [](CompactStep, uint64_t, uint64_t) {});
    return folder.native();
  }();
  return kFolder;
}

}  // namespace klotski
