#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/foresight.h"
#include "cli/load.h"
#include "engine/prepared_model.h"
#include "text/tokenizer.h"

namespace klotski {

inline constexpr size_t kWarmUpTexts = 8;  // as many as the paper's pre-run takes

// What every command that computes lets the user fix: limits, strategy, and where to write what
// happened.
struct PipelineFlags {
  RunLimits limits;
  PipelineOptions options;
  std::string device = "auto";  // see open_target
  std::string kernels = "cpu";
  std::string trace_file;
  std::string timeline_file;
  std::string correlation_file;       // read before
  std::string save_correlation_file;  // written after
  std::string warm_up;                // a file of text, or "sample"
  bool show_plan = false;
  // Opened when first used; copies of the flags share it.
  std::shared_ptr<std::shared_ptr<OpenedTarget>> target =
      std::make_shared<std::shared_ptr<OpenedTarget>>();
};

// What the flags let compute. Throws device_unavailable where that cannot be had.
Target& target_of(const PipelineFlags& flags);
// The same on the CPU.
PipelineFlags on_cpu(PipelineFlags flags);

void add_pipeline_flags(CLI::App& command, const std::shared_ptr<PipelineFlags>& flags);

// Plans a run; prints the plan where asked to or to a terminal. No weight is read yet. With
// foresight, what the flags leave open is chosen by prediction; without, as the work's size
// suggests, which is all there is to choose for one sequence.
std::unique_ptr<PreparedModel> prepare_model(const OpenedModel& opened, const PipelineFlags& flags,
                                             const Workload& workload,
                                             Foresight* foresight = nullptr);

// Foresight for the flags; none where they choose arithmetic that is not made to be fast, or where
// there is too little memory to measure the machine, which `why_none` then says: whoever goes on
// without prints it, once the model turned out to fit.
struct MaybeForesight {
  std::unique_ptr<Foresight> foresight;
  std::string why_none;  // a line of text, or nothing
};
MaybeForesight foresight_for(const OpenedModel& opened, const PipelineFlags& flags);

// What the flags ask of a pipeline; refuses (usage) those that contradict each other.
PipelineOptions options_of(const PipelineFlags& flags);

// The table that the flags name, which must be of the model and of their path length.
std::optional<CorrelationTable> correlation_table(const OpenedModel& opened,
                                                  const PipelineFlags& flags);

// Passes the warm-up text, where one is asked for, through the model: the correlation table learns.
void warm_up(const PipelineFlags& flags, PreparedModel& model, const Tokenizer& tokenizer);

// What the flags give up of the model's exactness, in words; empty: nothing.
std::vector<std::string> losses(const PipelineFlags& flags);

// After a run: writes the files that were asked for.
void write_pipeline_files(const PipelineFlags& flags, PreparedModel& model);

// Lanes, bubbles, bytes, cache and memory of a run, as text.
std::string format_summary(PreparedModel& model);

}  // namespace klotski
