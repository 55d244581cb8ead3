#include "session/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/keep_for_ever.h"
#include "device/device.h"
#include "engine/text_pass.h"
#include "executor/disk_source.h"
#include "executor/packing_source.h"
#include "model/compact_model.h"
#include "planner/preview.h"

namespace klotski {

namespace {

// The paper's pre-run takes 8 sequences of 512 tokens.
constexpr size_t kWarmUpSequences = 8;
constexpr int64_t kWarmUpTokens = 512;

// Packing experts takes a while, and the predictions are as good as they are: a packed form must
// be predicted to be this many times as fast.
constexpr double kWorthPacking = 1.03;
// The share of its bytes that a checkpoint takes at the least once it is packed: 12 of 16 bits.
constexpr double kLeastPackedShare = 0.75;

// Whether a memory has room for every unit that may be packed.
bool has_all_experts(const MemoryPlan& memory, const ModelDescription& model) {
  const auto has_all = [&](UnitKind kind) {
    return memory.slots[index_of(kind)] >= std::ssize(units_of(model, kind));
  };
  return has_all(UnitKind::expert) && has_all(UnitKind::dense);
}

OpenedTarget target_for(const SessionOptions& options, const SessionEvents& events) {
  check_options(options);
  return open_target(options.device, options.kernels, events);
}

}  // namespace

Session::Session(std::shared_ptr<const OpenedModel> model, SessionOptions options,
                 SessionEvents events)
    : Session(model, target_for(options, events), options, events) {}

Session::Session(std::shared_ptr<const OpenedModel> model, OpenedTarget target,
                 SessionOptions options, SessionEvents events)
    : plain_{.model = model, .source = model->source, .foresight = {}},
      options_(std::move(options)),
      events_(std::move(events)),
      target_(std::move(target)) {
  check_options(options_);
  check_options_on_target(options_, target_.target);
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

PipelineOptions Session::pipeline_options(const Form& form) const {
  PipelineOptions options = options_.pipeline;
  options.source = form.source;
  options.executor.tell_slow = [events = events_](const std::string& text) {
    events.tell(Remark::Topic::nothing_ends, text);
  };
  return options;
}

void Session::measure(Form& form) {
  if (form.foresight) return;
  form.foresight = std::make_unique<Foresight>(*form.model, target_.target, options_.limits,
                                               pipeline_options(form));
  if (table_) form.foresight->assume_popularity(&*table_);
  const Probed& probed = form.foresight->probed();
  if (!probed.cached) {
    const std::string kept = probed.why_not_kept.empty()
                                 ? "kept for the next time"
                                 : "not kept for the next time: " + one_line(probed.why_not_kept);
    events_.tell(Remark::Topic::machine_measured,
                 fmt::format("measured the machine{} in {:.1f} s; {}",
                             probed.contradicted ? " anew, since runs were not as planned," : "",
                             probed.seconds, kept));
  }
}

const Foresight& Session::foresight() {
  measure(*form_);
  return *form_->foresight;
}

const Foresight* Session::foresight_or_none() {
  if (options_.kernels == "reference" || !why_no_foresight_.empty()) return nullptr;
  try {
    measure(plain_);
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

void Session::use(Form& form) {
  // Weights that a run before left in host slots have the other form.
  if (form_ != &form) target_.target.host.reset();
  form_ = &form;
}

Session::Form* Session::form_to_pack(const RunPlan& plain) {
  if (options_.packing == Packing::never || has_all_experts(plain.memory, description()))
    return nullptr;
  const OpenedModel& model = *plain_.model;
  const uint64_t ram =
      ram_limit(options_.limits, machine_memory(target_.target, options_.pipeline));
  const double least_bytes =
      kLeastPackedShare * static_cast<double>(model.checkpoint.total_bytes());
  if (least_bytes >= static_cast<double>(ram)) return nullptr;
  if (!packed_) {
    packed_.emplace();
    if (auto checkpoint = packed_in_memory(description(), model.checkpoint)) {
      packed_->model =
          std::make_shared<const OpenedModel>(OpenedModel{.folder = model.folder,
                                                          .description = model.description,
                                                          .checkpoint = std::move(*checkpoint),
                                                          .source = {},
                                                          .home = model.home});
      packed_->source = std::make_shared<PackingSource>(
          description(), model.checkpoint,
          plain_.source ? plain_.source
                        : std::make_shared<DiskSource>(model.checkpoint, options_.pipeline.disk));
    }
  }
  if (!packed_->model) return nullptr;
  return packed_->model->checkpoint.total_bytes() < ram ? &*packed_ : nullptr;
}

Session::FormPlan Session::fastest_form(const Workload& workload,
                                        const CorrelationTable* popularity) {
  const auto planned = [&](Form& form) {
    form.foresight->assume_popularity(table_ ? &*table_ : popularity);
    return choose_plan(form.foresight->inputs(), options_.limits, workload);
  };
  ChosenPlan plain = planned(plain_);
  Form* form = form_to_pack(plain.run);
  if (form == nullptr) return {plain_, std::move(plain)};
  try {
    measure(*form);
    ChosenPlan packed = planned(*form);
    const MemoryPlan& ram = packed.run.host ? *packed.run.host : packed.run.memory;
    const bool worth =
        options_.packing == Packing::always || packed.rate() >= kWorthPacking * plain.rate();
    if (has_all_experts(ram, description()) && worth) {
      return {*form, std::move(packed), std::move(plain.run)};
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::does_not_fit) throw;
  }
  return {plain_, std::move(plain)};
}

const RunPlan& Session::plan(const Workload& workload, PlanBy by,
                             const CorrelationTable* popularity) {
  unload();
  plan_.reset();
  plain_plan_.reset();
  workload_ = workload;
  if (plans_by_prediction(by)) {
    FormPlan fastest = fastest_form(workload, popularity);
    use(fastest.form);
    plan_ = std::move(fastest.chosen.run);
    plain_plan_ = std::move(fastest.plain);
    if (form_ != &plain_) {
      events_.tell(Remark::Topic::experts_packed,
                   "experts are packed into 12 bits a weight in memory, which loses nothing");
    }
  } else {
    use(plain_);
    const UnitLayouts layouts(description(), plain_.model->checkpoint);
    plan_ = plan_run(run_inputs(description(), layouts, target_.target, pipeline_options(plain_)),
                     options_.limits, workload);
  }
  // Told only now: work that does not fit at all has another error to read about.
  if (!why_no_foresight_.empty() && !std::exchange(told_why_, true)) {
    events_.tell(Remark::Topic::no_prediction, why_no_foresight_);
  }
  if (events_.planned) events_.planned(*plan_);
  return *plan_;
}

std::vector<TimelineSpan> Session::predicted_spans() const {
  if (!plan_ || !form_->foresight) return {};
  PlannedWork work = planned_work(workload_);
  work.at_once = std::min(work.sequences, plan_->policy.group.sequences());
  return preview(form_->foresight->prediction_inputs(), plan_->policy, work).spans;
}

Planning Session::explain(const Workload& workload) {
  unload();
  measure(plain_);
  FormPlan fastest = fastest_form(workload, nullptr);
  return Planning(*fastest.form.model, *fastest.form.foresight, options_.limits, workload,
                  std::move(fastest.chosen));
}

void Session::load_form() {
  PipelineOptions options = pipeline_options(*form_);
  options.predictor = read_predictor(description(), options_, plan_->policy.strategy);
  history_ = options.predictor.history;
  loaded_ =
      std::make_unique<Loaded>(*form_->model, target_.target, *plan_, options, options_.engine);
  if (table_) pipeline().correlations() = *table_;
  try {
    // A device's weights are in place before it begins, and all are packed or none.
    if (on_device() || form_ != &plain_) preload();
  } catch (...) {
    if (pipeline().stop()) loaded_.reset();
    throw;
  }
}

void Session::load() {
  if (!plan_) fail(ErrorKind::internal, "a session was to be loaded before it was planned");
  unload();
  try {
    load_form();
  } catch (const NotPackable& error) {
    if (loaded_) throw;  // and a task of it never ends
    events_.tell(Remark::Topic::experts_packed,
                 fmt::format("experts stay as they are: {}", one_line(error.what())));
    options_.packing = Packing::never;
    use(plain_);
    packed_.reset();  // with the memory of its source, which the plain plan does not count
    plan_ = std::exchange(plain_plan_, {});
    if (events_.planned) events_.planned(*plan_);
    load_form();
  }
}

Session::~Session() {
  if (loaded_ && !pipeline().stop()) abandon();
}

void Session::unload() {
  if (loaded_ && !pipeline().stop()) {
    fail(ErrorKind::device_lost, "a model cannot be unloaded while one of its tasks never ends");
  }
  loaded_.reset();
}

// Keeps all that tasks use for as long as the process lives.
void Session::abandon() {
  pipeline().abandon();
  keep_for_ever(plain_.model);
  keep_for_ever(form_->model);
  keep_for_ever(std::move(target_));
  keep_for_ever(std::move(loaded_));
}

void Session::preload() {
  pipeline().preload([&](uint64_t done, uint64_t total) {
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
