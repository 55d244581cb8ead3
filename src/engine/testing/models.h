#pragma once

// Models of the engine's tests: the tiny models of the test data, and the bundled one with its
// experts made compact, in a format that only tests know (tensor/testing.h), or with all of its
// layers' matrices in a format of quantised checkpoints.

#include <string>
#include <utility>

#include "engine/prepared_model.h"
#include "engine/run_inputs.h"
#include "engine/testing/resident_model.h"
#include "kernels/testing.h"
#include "model/config.h"
#include "weights/checkpoint.h"

namespace klotski {

inline constexpr const char* kCompact = "compact";
inline constexpr const char* kDrill = "drill";
// Values of quant_method.
inline constexpr const char* kFp8 = "fp8";
inline constexpr const char* kInt4 = "compressed-tensors";
inline constexpr const char* kGptq = "gptq";
inline constexpr const char* kAwq = "awq";
// Latent attention in blocks of 8-bit floats.
inline constexpr const char* kFp8Latent = "fp8 deepseek_v3";

// Folders of models that are made once and gone with the process.
std::string compact_model_folder();
std::string drill_model_folder();
std::string expanded_drill_folder();
// A model of random numbers quantised by a method, and one with the numbers that they expand to.
struct QuantisedFolders {
  std::string quantised;
  std::string plain;
};
// Null for other names.
const QuantisedFolders* quantised_folders(const std::string& method);

inline std::string test_model(const std::string& name) {
  if (name == kCompact) return compact_model_folder();
  if (name == kDrill) return drill_model_folder();
  if (const QuantisedFolders* folders = quantised_folders(name)) return folders->quantised;
  return std::string(KLOTSKI_TEST_DATA) + "/models/" + name;
}
// A model with the numbers of `name` in a format that every program has.
inline std::string plain_model(const std::string& name) {
  if (name == kDrill) return expanded_drill_folder();
  if (const QuantisedFolders* folders = quantised_folders(name)) return folders->plain;
  return name == kCompact ? std::string(KLOTSKI_MODELS) + "/tiny-mixtral" : test_model(name);
}

// Bytes that the cache of one sequence of `tokens` tokens takes in memory.
inline uint64_t sequence_cache_bytes(const ModelDescription& model, Precision precision,
                                     int64_t tokens) {
  return static_cast<uint64_t>(PagedKvCache::pages_for(tokens)) *
             PagedKvCache::page_bytes(model, kv_type(precision)) +
         SequenceStates::sequence_bytes(model);
}

struct TestModel {
  explicit TestModel(const std::string& folder) : TestModel(Checkpoint::open(folder)) {}
  explicit TestModel(Checkpoint opened)
      : description(describe_model(opened)), checkpoint(std::move(opened)) {}

  ResidentModel resident() const { return ResidentModel(description, checkpoint); }
  RunPlan plan(const RunLimits& limits, const Workload& workload,
               const PipelineOptions& options = {},
               const Processor& ops = reference_processor()) const {
    const Target target{.ops = ops};
    const UnitLayouts layouts(description, checkpoint);
    return plan_run(run_inputs(description, layouts, target, options), limits, workload);
  }
  PreparedModel prepare(const RunLimits& limits, const Workload& workload,
                        const PipelineOptions& options = {},
                        const Processor& ops = reference_processor()) const {
    Target target{.ops = ops};
    return PreparedModel(description, checkpoint, target, plan(limits, workload, options, ops),
                         options);
  }

  ModelDescription description;
  Checkpoint checkpoint;
};

}  // namespace klotski
