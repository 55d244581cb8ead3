#pragma once

// A session takes a model and limits to an engine that takes requests:
//
//   Session session(open_model("tiny"), {.limits = {.ram_bytes = 3 * kGiB}});
//   session.plan({.sequences = 8, .tokens_per_sequence = 600, .prompt_tokens = 512});
//   session.load();
//   session.engine().submit(...);

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "session/events.h"
#include "session/foresight.h"
#include "session/opened_model.h"
#include "session/opened_target.h"
#include "session/planning.h"
#include "session/session_options.h"
#include "text/tokenizer.h"

namespace klotski {

// How a plan chooses all that the limits leave open.
enum class PlanBy {
  rules,       // rules of thumb by the size of the work; the machine need not be measured
  prediction,  // the fastest by prediction; by rules where the machine cannot be measured
};

// A model on a target within limits: planned, then loaded, then running. Prints nothing: remarks
// and progress go to the events. Several sessions may live at once; each is used by one thread at a
// time.
class Session {
 public:
  // Opens the target and reads the correlation table, if the options name one. Refuses (usage)
  // options that contradict each other or the target.
  explicit Session(std::shared_ptr<const OpenedModel> model, SessionOptions options = {},
                   SessionEvents events = {});
  // A session on a target that the caller has opened.
  Session(std::shared_ptr<const OpenedModel> model, OpenedTarget target,
          SessionOptions options = {}, SessionEvents events = {});
  // Returns also where a task never ends: what that task may use is never freed.
  ~Session();
  Session(const Session&) = delete;  // its parts refer to each other
  Session& operator=(const Session&) = delete;

  const OpenedModel& model() const { return *plain_.model; }
  const ModelDescription& description() const { return plain_.model->description; }
  const SessionOptions& options() const { return options_; }
  bool on_device() const { return device() != nullptr; }
  const Device* device() const { return target_.target.device; }  // null: the CPU computes

  // Limits of the plans made from now on.
  void set_limits(const RunLimits& limits);

  // Measures the machine, where that was not done before, to predict the time of work with the
  // model in the form that the last plan chose. Throws does_not_fit where there is too little
  // memory to measure in.
  const Foresight& foresight();
  // foresight(), or null where there is too little memory to measure in, or where the reference
  // kernels compute, whose speed nobody wants to know. The first plan that does without tells why
  // in a remark.
  const Foresight* foresight_or_none();

  // Plans how to run the work within the limits; a loaded model is unloaded first, so that the plan
  // can count on its memory. Experts are taken to be as popular as the options' correlation table
  // saw them, else as `popularity`, else equally. Throws does_not_fit where the work does not fit.
  // Reads no weight.
  const RunPlan& plan(const Workload& workload, PlanBy by = PlanBy::rules,
                      const CorrelationTable* popularity = nullptr);
  // Spans that a prediction of the last plan gives, of its last passes, in which all sequences
  // decode; none where the machine was not measured for the plan.
  std::vector<TimelineSpan> predicted_spans() const;
  // A plan by prediction with its reasons, to look at: the session's own plan stays as it is. The
  // session must live longer.
  Planning explain(const Workload& workload);

  // Takes the memory that the last plan asks for. With a GPU its weights are brought as well; on
  // the CPU each is read when a pass first wants it.
  void load();
  // Throws device_lost where a task of the loaded model never ends.
  void unload();
  // Brings weights to where passes leave them, before any pass. Only while loaded; with a GPU,
  // load() has done so.
  void preload();
  bool loaded() const { return loaded_ != nullptr; }

  // The loaded engine, model and pipeline; only while loaded.
  Engine& engine();
  PreparedModel& prepared();
  Pipeline& pipeline() { return prepared().pipeline(); }
  // Work done since the model was loaded.
  PipelineReport report() { return pipeline().report(); }

  // Passes sequences cut from a text through the model, so that the correlation table knows which
  // experts to expect. Only while loaded.
  void warm_up(const Tokenizer& tokenizer, std::string_view text);
  void save_correlation_table(const std::filesystem::path& file);
  // Writes the matrices of past requests, those since the last load among them, to the options'
  // file, if they name one.
  void save_activation_history() const;

 private:
  // A prepared model with the engine that uses it.
  struct Loaded {
    Loaded(const OpenedModel& model, Target& target, const RunPlan& plan,
           const PipelineOptions& options, const EngineOptions& engine_options)
        : prepared(model.description, model.checkpoint, target, plan, options),
          engine(prepared.pipeline(), engine_options) {}

    PreparedModel prepared;
    Engine engine;
  };

  // The model as memory has it: as in its files, or with its experts packed while they are read.
  struct Form {
    std::shared_ptr<const OpenedModel> model;
    std::shared_ptr<UnitSource> source;  // null: the model's files
    std::unique_ptr<Foresight> foresight;
  };

  bool plans_by_prediction(PlanBy by);
  PipelineOptions pipeline_options(const Form& form) const;
  void measure(Form& form);
  void use(Form& form);
  // The packed form where it may be faster than a plan for the plain one: the model has experts to
  // pack, the plan leaves some of them out of the compute tier, and RAM may hold all of them
  // packed. Null: it may not.
  Form* form_to_pack(const RunPlan& plain);
  struct FormPlan {
    Form& form;
    ChosenPlan chosen;
    std::optional<RunPlan> plain{};  // the plan for the plain form, where `form` is the other
  };
  // The form, of the two, whose plan is the faster one by prediction.
  FormPlan fastest_form(const Workload& workload, const CorrelationTable* popularity);
  void load_form();
  void abandon();
  // Later members refer to earlier ones, and go before them.
  Form plain_;
  SessionOptions options_;
  SessionEvents events_;
  OpenedTarget target_;
  std::optional<CorrelationTable> table_;  // the table of the options' correlation file
  std::optional<Form> packed_;    // made when a plan may want it; without a model: nothing to pack
  Form* form_ = &plain_;          // the form of the last plan
  std::string why_no_foresight_;  // empty: not tried, or there is one
  bool told_why_ = false;         // no foresight
  std::optional<RunPlan> plan_;
  Workload workload_{};  // of the last plan
  // The plan for the plain form, where plan_ is for the other, whose weights may turn out not to be
  // packable.
  std::optional<RunPlan> plain_plan_;
  std::shared_ptr<const ActivationHistory> history_;  // of the pipeline loaded last
  std::unique_ptr<Loaded> loaded_;
};

}  // namespace klotski
