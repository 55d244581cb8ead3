#include "session/measure.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "base/error.h"
#include "engine/engine.h"

namespace klotski {

namespace {

constexpr size_t kSampledPrompts = 8;      // prompts of the paper's pre-run
constexpr int64_t kSampledGenerated = 17;  // generated after each; the first by the prompt's pass

void submit(Engine& engine, const MeasuredWork& work) {
  for (size_t i = 0; i < work.prompts.size(); ++i) {
    Request request{
        .prompt = work.prompts[i], .sampling = {}, .max_tokens = work.generate, .stop_tokens = {}};
    if (!work.continuations.empty()) request.given_tokens = work.continuations[i];
    engine.submit(std::move(request));
  }
}

std::vector<Progress> step(Engine& engine) {
  std::vector<Progress> gained = engine.step();
  for (const Progress& progress : gained) {
    if (progress.finish == Finish::failed) fail(progress.error_kind, "{}", progress.error);
  }
  return gained;
}

}  // namespace

int64_t MeasuredWork::longest_prompt() const {
  size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  return static_cast<int64_t>(longest);
}

Workload MeasuredWork::workload(const ModelDescription& model) const {
  const int64_t known = longest_prompt() + (model.encoder ? 1 : 0);
  return {.sequences = static_cast<int64_t>(prompts.size()),
          .tokens_per_sequence = known + generate,
          .prompt_tokens = known,
          .generated_tokens = generate};
}

void PassClock::pass(bool decodes, int64_t gained) {
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - last_).count();
  last_ = now;
  (decodes ? decode_seconds_ : prefill_seconds_) += seconds;
  if (decodes) decoded_tokens_ += gained;
}

MeasuredWork work_from_text(const Tokenizer& tokenizer, std::string_view text, int64_t prompts,
                            int64_t prompt_tokens, int64_t generate, Answers answers) {
  const std::vector<TokenId> tokens = tokenizer.encode(text, {});
  const bool given = answers == Answers::text;
  const int64_t length = prompt_tokens + (given ? generate : 0);
  if (std::ssize(tokens) < length) {
    fail(ErrorKind::usage, "the text has {} tokens, a prompt{} needs {}; give a longer --text",
         tokens.size(), given ? " and its answer" : "", length);
  }
  MeasuredWork work{.prompts = {}, .generate = generate};
  const int64_t places = std::ssize(tokens) - length + 1;
  for (int64_t i = 0; i < prompts; ++i) {
    const auto begin = tokens.begin() + i * places / prompts;
    work.prompts.emplace_back(begin, begin + prompt_tokens);
    if (given) work.continuations.emplace_back(begin + prompt_tokens, begin + length);
  }
  return work;
}

MeasuredWork work_from_routing(const RecordedRouting& routing, int64_t prompts,
                               int64_t prompt_tokens) {
  MeasuredWork work;
  for (int64_t i = 0; i < prompts; ++i) {
    const std::vector<TokenId>& tokens = routing.stretch(i).tokens;
    const auto middle = tokens.begin() + prompt_tokens;
    work.prompts.emplace_back(tokens.begin(), middle);
    work.continuations.emplace_back(middle, tokens.end());
    work.generate = std::ssize(work.continuations.back());
  }
  return work;
}

double Measurement::tokens_per_second() const {
  return static_cast<double>(generated_tokens) / seconds;
}

double Measurement::prefill_rate() const {
  return prefill_seconds > 0 ? static_cast<double>(prompt_tokens) / prefill_seconds : 0.0;
}

double Measurement::decode_rate() const {
  return decode_seconds > 0 ? static_cast<double>(decoded_tokens) / decode_seconds : 0.0;
}

LearntChoices learn_choices(Session& session, const MeasuredWork& work) {
  MeasuredWork sample = work;
  sample.prompts.resize(std::min(kSampledPrompts, sample.prompts.size()));
  sample.generate = work.generate < kSampledGenerated ? 1 : kSampledGenerated;
  session.plan(sample.workload(session.description()));
  session.load();
  CorrelationTable& table = session.pipeline().correlations();
  Engine& engine = session.engine();
  submit(engine, sample);
  // A sequence's first token ends its prompt.
  std::set<int64_t> generating;
  while (generating.size() < sample.prompts.size()) {
    for (const Progress& progress : step(engine)) generating.insert(progress.sequence.value);
  }
  const CorrelationTable of_prompts = table;
  if (engine.idle()) return {of_prompts, of_prompts};
  table = CorrelationTable(of_prompts.shape(), of_prompts.path_length());
  while (!engine.idle()) step(engine);
  return {of_prompts, table};
}

namespace {

bool holds_all_weights(const ModelDescription& model, const TierMemory& memory) {
  for (size_t kind = 0; kind < kUnitKinds; ++kind) {
    if (memory.slots[kind] < std::ssize(units_of(model, static_cast<UnitKind>(kind)))) return false;
  }
  return true;
}

}  // namespace

Measurement measure(Session& session, const MeasuredWork& work, const LearntChoices& learnt) {
  using Clock = std::chrono::steady_clock;
  // While prompts are computed nearly all experts are used: a plan turns on the choices of decoding
  // rows.
  session.plan(work.workload(session.description()), PlanBy::prediction, &learnt.of_generated);
  Measurement result;
  const Clock::time_point begin = Clock::now();
  session.load();
  const Policy& policy = session.prepared().plan().policy;
  const bool holds_all = holds_all_weights(session.description(), policy.layout.compute());
  if (holds_all && !session.on_device()) session.preload();
  result.load_seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  Pipeline& pipeline = session.pipeline();
  pipeline.correlations() = learnt.of_prompts;
  Engine& engine = session.engine();
  result.generated.resize(work.prompts.size());
  submit(engine, work);
  for (const std::vector<TokenId>& prompt : work.prompts) {
    result.prompt_tokens += static_cast<int64_t>(prompt.size());
  }
  const Clock::time_point start = Clock::now();
  PassClock clock;
  while (!engine.idle()) {
    const std::vector<Progress> gained = step(engine);
    for (const Progress& progress : gained) {
      result.generated[static_cast<size_t>(progress.sequence.value)].push_back(progress.token);
      ++result.generated_tokens;
    }
    clock.pass(engine.last_pass().decodes(), std::ssize(gained));
  }
  result.prefill_seconds = clock.prefill_seconds();
  result.decode_seconds = clock.decode_seconds();
  result.decoded_tokens = clock.decoded_tokens();
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  result.plan = session.prepared().plan();
  result.report = pipeline.report();
  if (const Foresight* foresight = session.foresight_or_none()) {
    PlannedWork planned = planned_work(work.workload(session.description()));
    planned.at_once =
        sequences_at_once(session.description(), result.plan, work.workload(session.description()));
    planned.weights_in_place = holds_all;
    result.predicted = foresight->predict(result.plan, planned);
  }
  return result;
}

}  // namespace klotski
