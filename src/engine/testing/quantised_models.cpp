#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>

#include "base/json.h"
#include "base/noise.h"
#include "engine/testing/models.h"
#include "model/units.h"
#include "tensor/format.h"
#include "tensor/half.h"
#include "tensor/testing.h"
#include "weights/checkpoint_writer.h"
#include "weights/testing.h"

namespace klotski {

namespace {

constexpr const char* kFp8Config = R"({"quant_method":"fp8","weight_block_size":[128,128]})";

// The quantization_config of each method. Rows of the bundled model have 192 or 256 columns.
const std::map<std::string, std::string>& configurations() {
  static const std::map<std::string, std::string> kConfigurations = {
      {kFp8, kFp8Config},
      {kFp8Latent, kFp8Config},
      {kInt4, R"({"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":
               {"group_0":{"weights":{"num_bits":4,"strategy":"group","group_size":32,
               "symmetric":false}}}})"},
      {kGptq, R"({"quant_method":"gptq","bits":4,"group_size":64})"},
      {kAwq, R"({"quant_method":"awq","bits":4,"group_size":128})"}};
  return kConfigurations;
}

struct FileTensor {
  NewTensor tensor;
  std::vector<std::byte> bytes;
};

void write_tensors(const std::filesystem::path& folder, const Json& config,
                   const std::deque<FileTensor>& tensors) {
  std::filesystem::create_directory(folder);
  testing_files::write_file(folder / "config.json", config.dump());
  std::vector<NewTensor> list;
  for (const FileTensor& whole : tensors) list.push_back(whole.tensor);
  write_checkpoint(
      folder, list,
      [&](size_t tensor, uint64_t offset, std::span<std::byte> out) {
        std::copy_n(tensors[tensor].bytes.data() + offset, out.size(), out.data());
      },
      [](uint64_t) {});
}

// The random bits of a part. Scales are powers of two: BF16 can hold their products with numbers of
// few bits, so that products of either precision equal those of BF16 elements.
NoiseBits noise_of_part(const StoredPart& part) {
  NoiseBits noise = format_of(part.dtype).noise;
  if (part.dtype == DType::F16) noise.random &= 0xFC00FC00FC00FC00u;
  if (part.dtype == DType::BF16) noise.random &= 0xFF80FF80FF80FF80u;
  if (part.dtype == DType::F32) noise.random &= 0xFF800000FF800000u;
  return noise;
}

std::vector<std::byte> random_part(const StoredPart& part, const NoiseBits& noise, uint64_t seed) {
  std::vector<std::byte> bytes(part.bytes);
  for (uint64_t i = 0; i < part.bytes; ++i) {
    const uint64_t word = (noise_bits(seed, i / 8 + 1) & noise.random) | noise.fixed;
    bytes[i] = static_cast<std::byte>(word >> (i % 8 * 8));
  }
  return bytes;
}

// Writes both folders. Embedding, norms, routers and output stay as they are.
class QuantisedModel {
 public:
  QuantisedModel(const std::string& folder, const std::string& configuration) {
    const TestModel model(folder);
    Json config = parse_json(testing_files::content_of(folder + "/config.json"), "config");
    const Json plain_config = config;
    config["quantization_config"] = parse_json(configuration, "quantization");
    stated_ = parse_config(config.dump(), "config").stated_formats.front();
    std::set<std::string> left;
    for (const TensorEntry& entry : model.checkpoint.tensors()) left.insert(entry.name);
    for (const UnitKind kind : {UnitKind::attention, UnitKind::expert}) {
      for (const WeightUnit& unit : units_of(model.description, kind)) {
        for (const TensorSpec& spec : unit_tensors(model.description, unit)) {
          if (spec.shape.size() == 2 && left.erase(spec.name) == 1) add(spec);
        }
      }
    }
    for (const std::string& name : left) {
      const TensorEntry& entry = model.checkpoint.require(name);
      FileTensor whole{{name, entry.dtype, entry.shape}, std::vector<std::byte>(entry.bytes)};
      model.checkpoint.read(entry, whole.bytes);
      quantised_.push_back(whole);
      plain_.push_back(std::move(whole));
    }
    write_tensors(folders.quantised, config, quantised_);
    write_tensors(folders.plain, plain_config, plain_);
    quantised_.clear();
    plain_.clear();
  }

 private:
  void add(const TensorSpec& spec) {
    TensorView view{.dtype = stated_, .shape = spec.shape};
    const std::vector<StoredPart> parts = stored_parts(stated_, spec.shape);
    for (size_t i = 0; i < parts.size(); ++i) {
      const NoiseBits noise = i == 0 ? format_of(stated_).noise : noise_of_part(parts[i]);
      quantised_.push_back({{parts[i].name.of(spec.name), parts[i].dtype, parts[i].shape},
                            random_part(parts[i], noise, quantised_.size())});
      (i == 0 ? view.data : view.sides[i - 1]) = quantised_.back().bytes.data();
    }
    const std::vector<float> exact = testing_formats::expanded(view);
    std::vector<uint16_t> numbers(exact.size());
    std::transform(exact.begin(), exact.end(), numbers.begin(), float_to_bf16);
    const auto bytes = std::as_bytes(std::span(numbers));
    plain_.push_back({{spec.name, DType::BF16, spec.shape}, {bytes.begin(), bytes.end()}});
  }

  testing_files::ScratchFolder home_;
  DType stated_ = DType::F32;
  std::deque<FileTensor> quantised_;
  std::deque<FileTensor> plain_;

 public:
  const QuantisedFolders folders{home_.path() / "quantised", home_.path() / "plain"};
};

}  // namespace

const QuantisedFolders* quantised_folders(const std::string& method) {
  static std::map<std::string, std::unique_ptr<const QuantisedModel>> made;
  const auto configuration = configurations().find(method);
  if (configuration == configurations().end()) return nullptr;
  std::unique_ptr<const QuantisedModel>& model = made[method];
  const std::string folder =
      method == kFp8Latent ? test_model("deepseek_v3") : plain_model(kCompact);
  if (!model) model = std::make_unique<const QuantisedModel>(folder, configuration->second);
  return &model->folders;
}

}  // namespace klotski
