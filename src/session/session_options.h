#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/run_inputs.h"
#include "experts/correlation_table.h"
#include "session/opened_model.h"

namespace klotski {

// Whether plans by prediction pack plain bf16 experts into their compact form while they are read,
// which loses nothing. Experts are packed only where not all of them fit the memory of the
// processor that computes, and RAM holds all of them packed.
enum class Packing {
  never,
  where_faster,  // by prediction
  always,
};

// Limits and choices of a session, as plain data.
struct SessionOptions {
  RunLimits limits;
  PipelineOptions pipeline;  // the session itself sets its source of weights and predictor
  EngineOptions engine{};
  Packing packing = Packing::where_faster;
  std::string predictor;         // see make_predictor; empty: see read_predictor
  std::string device = "auto";   // see open_target
  std::string kernels = "cpu";   // see open_target
  std::string correlation_file;  // correlation table to begin with; empty: an empty table
  std::string predictor_file;    // trained network of the predictor "path"
  // Matrices of past requests for the predictors "activation-aware", "token" and "path": read where
  // the file exists, and written by save_activation_history(). Empty: none are kept.
  std::string activation_file;
};

// Values of options by their names, for command lines and other programs. An unknown name is
// refused (usage) by a message that begins with `option`, as its user writes it.
std::optional<Strategy> strategy_choice(std::string_view option, std::string_view name);
std::optional<bool> cpu_attention_choice(std::string_view option, std::string_view name);
Precision precision_choice(std::string_view option, std::string_view name);
std::string kernels_choice(std::string_view option, std::string_view name);

// Refuses (usage) options that contradict each other, whatever the target is.
void check_options(const SessionOptions& options);
// Refuses (usage) options that need a GPU where the target has none.
void check_options_on_target(const SessionOptions& options, const Target& target);

// These options for a session that computes on the CPU alone: options that need a GPU are dropped.
SessionOptions on_cpu(SessionOptions options);

// The types that the model's tensors have, each once.
std::vector<DType> weight_types(const OpenedModel& model);

// The ways in which these limits and the types of the weights make results differ from the exact
// model, in words; empty: none.
std::vector<std::string> losses(const RunLimits& limits, std::span<const DType> weights);

// Reads the correlation table that the options name. Refuses a table of another model (bad file) or
// of another path length than the limits' (usage).
std::optional<CorrelationTable> read_correlation_table(const ModelDescription& model,
                                                       const SessionOptions& options);

// The predictor of a run with the state that its files hold: the one that the options name or,
// where they name none, the one that reads a file they name, else the strategy's own, else
// "correlation". Refuses (usage) files of another predictor and a path predictor without its file;
// (bad_model) files of another model.
PredictorChoice read_predictor(const ModelDescription& model, const SessionOptions& options,
                               Strategy strategy);

}  // namespace klotski
