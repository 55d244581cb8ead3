#include "session/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "device/device.h"
#include "engine/text_pass.h"

namespace klotski {

namespace {

// The paper's pre-run takes 8 sequences of 512 tokens.
constexpr size_t kWarmUpSequences = 8;
constexpr int64_t kWarmUpTokens = 512;

// Weights that no GPU computes with are computed on the CPU, unless a GPU was asked for.
OpenedTarget target_for(const OpenedModel& model, const SessionOptions& options,
                        const SessionEvents& events) {
  check_options(options);
  const std::string types = types_of_cpu_alone(weight_types(model));
  if (types.empty() || options.device == "cpu") {
    return open_target(options.device, options.kernels, events);
  }
  const std::string why = fmt::format("no GPU computes with weights of {} yet", types);
  if (options.device != "auto") {
    fail(ErrorKind::bad_model, "{}: {}; expected --device cpu, found {}",
         path_in_quotes(model.folder), why, in_quotes(options.device));
  }
  if (!list_devices().devices.empty()) {
    events.tell(Remark::Topic::computes_on_cpu, fmt::format("computing on the CPU: {}", why));
  }
  return open_target("cpu", options.kernels, events);
}

}  // namespace

Session::Session(std::shared_ptr<const OpenedModel> model, SessionOptions options,
                 SessionEvents events)
    : Session(model, target_for(*model, options, events), options, events) {}

Session::Session(std::shared_ptr<const OpenedModel> model, OpenedTarget target,
                 SessionOptions options, SessionEvents events)
    : model_(std::move(model)),
      options_(std::move(options)),
      events_(std::move(events)),
      target_(std::move(target)) {
  check_options(options_);
  check_options_on_target(options_, target_.target);
  options_.pipeline.source = model_->source;
  // Files of another predictor or another model are refused before anything is planned.
  read_predictor(description(), options_, options_.limits.strategy.value_or(Strategy::klotski));
  table_ = read_correlation_table(description(), options_);
}

void Session::set_limits(const RunLimits& limits) {
  SessionOptions options = options_;
  options.limits = limits;
  check_options(options);
  check_options_on_target(options, target_.target);
  options_ = std::move(options);
}

const Foresight& Session::foresight() {
  if (foresight_) return *foresight_;
  foresight_ =
      std::make_unique<Foresight>(*model_, target_.target, options_.limits, options_.pipeline);
  if (table_) foresight_->assume_popularity(&*table_);
  const Probed& probed = foresight_->probed();
  if (!probed.cached) {
    events_.tell(
        Remark::Topic::machine_measured,
        fmt::format("measured the machine in {:.1f} s; kept for the next time", probed.seconds));
  }
  return *foresight_;
}

const Foresight* Session::foresight_or_none() {
  if (options_.kernels == "reference" || !why_no_foresight_.empty()) return nullptr;
  try {
    return &foresight();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::does_not_fit) throw;
    why_no_foresight_ = fmt::format("no prediction: {}", one_line(error.what()));
    return nullptr;
  }
}

// Strategies that divide experts between CPU and GPU are never planned by rules alone: which
// processor computes an expert depends on their measured times.
bool Session::plans_by_prediction(PlanBy by) {
  const std::optional<Strategy>& strategy = options_.limits.strategy;
  const bool divides = on_device() && strategy && properties_of(*strategy).divides_experts;
  return (by == PlanBy::prediction || divides) && foresight_or_none() != nullptr;
}

const RunPlan& Session::plan(const Workload& workload, PlanBy by,
                             const CorrelationTable* popularity) {
  unload();
  plan_.reset();
  if (plans_by_prediction(by)) {
    foresight_->assume_popularity(table_ ? &*table_ : popularity);
    plan_ = choose_plan(foresight_->inputs(), options_.limits, workload).run;
  } else {
    const UnitLayouts layouts(description(), model_->checkpoint);
    plan_ = plan_run(run_inputs(description(), layouts, target_.target, options_.pipeline),
                     options_.limits, workload);
  }
  // Told only now: work that does not fit at all has another error to read about.
  if (!why_no_foresight_.empty() && !std::exchange(told_why_, true)) {
    events_.tell(Remark::Topic::no_prediction, why_no_foresight_);
  }
  if (events_.planned) events_.planned(*plan_);
  return *plan_;
}

Planning Session::explain(const Workload& workload) {
  unload();
  Foresight with = foresight();
  with.assume_popularity(table_ ? &*table_ : nullptr);
  return Planning(*model_, std::move(with), options_.limits, workload);
}

void Session::load() {
  if (!plan_) fail(ErrorKind::internal, "a session was to be loaded before it was planned");
  unload();
  PipelineOptions pipeline_options = options_.pipeline;
  pipeline_options.predictor = read_predictor(description(), options_, plan_->policy.strategy);
  history_ = pipeline_options.predictor.history;
  auto loaded = std::make_unique<Loaded>(*model_, target_.target, *plan_, pipeline_options);
  if (table_) loaded->prepared.pipeline().correlations() = *table_;
  // A device's weights are in place before it begins.
  if (on_device()) preload(loaded->prepared.pipeline());
  loaded_ = std::move(loaded);
}

void Session::unload() { loaded_.reset(); }

void Session::preload() { preload(pipeline()); }

void Session::preload(Pipeline& pipeline) {
  pipeline.preload([&](uint64_t done, uint64_t total) {
    if (events_.progress) events_.progress({"loading weights", done, total});
  });
}

Engine& Session::engine() {
  prepared();
  return loaded_->engine;
}

PreparedModel& Session::prepared() {
  if (!loaded_) fail(ErrorKind::internal, "a session was to compute before it was loaded");
  return loaded_->prepared;
}

void Session::warm_up(const Tokenizer& tokenizer, std::string_view text) {
  const PagedKvCache& cache = pipeline().cache();
  const int64_t room =
      std::max(cache.capacity_pages(), cache.spill_capacity_pages()) * PagedKvCache::kPageTokens;
  const int64_t length = std::min({kWarmUpTokens, room, description().max_positions});
  const std::vector<TokenId> tokens = tokenizer.encode(text, {});
  std::vector<std::vector<TokenId>> sequences = cut_into_sequences(tokens, length);
  sequences.resize(std::min(sequences.size(), kWarmUpSequences));
  pass_texts(pipeline(), sequences);
}

void Session::save_activation_history() const {
  if (!options_.activation_file.empty() && history_) history_->save(options_.activation_file);
}

void Session::save_correlation_table(const std::filesystem::path& file) {
  pipeline().correlations().save(file);
}

}  // namespace klotski
