#include "engine/testing/models.h"

#include <set>

#include "model/compact_model.h"
#include "model/units.h"
#include "tensor/half.h"
#include "tensor/testing.h"
#include "weights/checkpoint_writer.h"
#include "weights/testing.h"

namespace klotski {

namespace {

using testing_formats::DrillMatrix;

// A tensor of a new folder with all of its bytes.
struct WholeTensor {
  NewTensor tensor;
  std::vector<std::byte> bytes;
};

template <typename Element>
std::vector<std::byte> bytes_of_list(const std::vector<Element>& list) {
  const auto bytes = std::as_bytes(std::span(list));
  return {bytes.begin(), bytes.end()};
}

void write_folder(const std::filesystem::path& folder, const std::string& config,
                  const std::vector<WholeTensor>& tensors) {
  std::filesystem::create_directory(folder);
  std::filesystem::copy(config, folder / "config.json");
  std::vector<NewTensor> list;
  for (const WholeTensor& whole : tensors) list.push_back(whole.tensor);
  write_checkpoint(
      folder, list,
      [&](size_t tensor, uint64_t offset, std::span<std::byte> out) {
        std::copy_n(tensors[tensor].bytes.data() + offset, out.size(), out.data());
      },
      [](uint64_t) {});
}

// The bundled model with experts in the tests' own format, and with the numbers they expand to.
struct DrillFolders {
  testing_files::ScratchFolder home;
  std::string packed = home.path() / "packed";
  std::string plain = home.path() / "plain";

  DrillFolders() {
    const TestModel model(plain_model(kCompact));
    std::set<std::string> of_experts;
    for (const WeightUnit& unit : units_of(model.description, UnitKind::expert)) {
      for (const TensorSpec& spec : unit_tensors(model.description, unit)) {
        of_experts.insert(spec.name);
      }
    }
    std::vector<WholeTensor> in_format;
    std::vector<WholeTensor> in_elements;
    for (const TensorEntry& entry : model.checkpoint.tensors()) {
      WholeTensor whole{{entry.name, entry.dtype, entry.shape},
                        std::vector<std::byte>(entry.bytes)};
      model.checkpoint.read(entry, whole.bytes);
      if (of_experts.count(entry.name) == 0) {
        in_format.push_back(whole);
        in_elements.push_back(std::move(whole));
      } else {
        add_expert(whole, in_format, in_elements);
      }
    }
    const std::string config = plain_model(kCompact) + "/config.json";
    write_folder(packed, config, in_format);
    write_folder(plain, config, in_elements);
  }

  static void add_expert(const WholeTensor& whole, std::vector<WholeTensor>& in_format,
                         std::vector<WholeTensor>& in_elements) {
    const auto* bits = reinterpret_cast<const uint16_t*>(whole.bytes.data());
    std::vector<float> values(whole.bytes.size() / 2);
    std::transform(bits, bits + values.size(), values.begin(), bf16_to_float);
    const DrillMatrix matrix(values, whole.tensor.shape,
                             testing_formats::DrillScales::powers_of_two);
    const std::vector<StoredPart> parts =
        stored_parts(testing_formats::drill_type(), whole.tensor.shape);
    const std::string& name = whole.tensor.name;
    in_format.push_back(
        {{parts[0].name.of(name), parts[0].dtype, parts[0].shape}, bytes_of_list(matrix.numbers)});
    in_format.push_back(
        {{parts[1].name.of(name), parts[1].dtype, parts[1].shape}, bytes_of_list(matrix.scales)});
    std::vector<uint16_t> numbers;
    for (const float number : testing_formats::expanded(matrix.view())) {
      numbers.push_back(float_to_bf16(number));
    }
    in_elements.push_back({{name, DType::BF16, whole.tensor.shape}, bytes_of_list(numbers)});
  }
};

const DrillFolders& drill_folders() {
  static const DrillFolders kFolders;
  return kFolders;
}

}  // namespace

std::string drill_model_folder() { return drill_folders().packed; }
std::string expanded_drill_folder() { return drill_folders().plain; }

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
