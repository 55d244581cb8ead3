#include "python/local_model.h"

#include <malloc.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/process_memory.h"
#include "engine/generation_defaults.h"
#include "engine/prompt.h"
#include "engine/text_pass.h"
#include "session/model_tokenizer.h"
#include "session/plan_report.h"

namespace klotski {

namespace {

using namespace std::chrono_literals;

// As long as passes give no updates, step() returns this often, so that its caller can look at
// signals; a pass that takes longer is waited for.
constexpr auto kStepTime = 20ms;
// Requests in the engine besides those of a group, so that it has some to choose from.
constexpr int64_t kWaitingRows = 256;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

LocalWork work_of(const LocalRequest& asked) {
  return {.sequences = 1,
          .prompt_tokens = std::ssize(asked.request.prompt),
          .generated_tokens = asked.request.max_tokens};
}

LocalWork larger(const LocalWork& a, const LocalWork& b) {
  return {.sequences = std::max(a.sequences, b.sequences),
          .prompt_tokens = std::max(a.prompt_tokens, b.prompt_tokens),
          .generated_tokens = std::max(a.generated_tokens, b.generated_tokens),
          .typical_tokens = std::max(a.typical_tokens, b.typical_tokens)};
}

Workload workload_of(const LocalWork& work, const ModelDescription& model) {
  const int64_t positions = (model.encoder ? 2 : 1) * model.max_positions;
  const auto bound = [&](int64_t tokens) { return std::clamp<int64_t>(tokens, 1, positions); };
  return {.sequences = work.sequences,
          .tokens_per_sequence = bound(work.prompt_tokens + work.generated_tokens),
          .prompt_tokens = bound(work.prompt_tokens),
          .typical_tokens = work.typical_tokens > 0 ? bound(work.typical_tokens) : 0,
          .generated_tokens = bound(work.generated_tokens)};
}

}  // namespace

LocalModel::LocalModel(const std::string& model, Options options)
    : own_bytes_(resident_bytes()),
      model_(open_model(model)),
      tokenizer_(load_tokenizer(model_->folder)),
      config_(load_tokenizer_config(model_->folder)),
      sampling_(klotski::suggested_sampling(model_->folder)),
      least_work_(options.least_work),
      ram_bytes_(options.session.limits.ram_bytes) {
  if (config_.chat_template) {
    chat_template_ = ChatTemplate::parse(*config_.chat_template, "chat template");
  }
  SessionEvents events{
      .remark = [this](const Remark& remark) { remarks_.push_back(remark.text); },
      .progress =
          [report = std::move(options.progress)](const WorkProgress&) {
            if (report) report();
          },
  };
  session_.emplace(model_, std::move(options.session), std::move(events));
  own_bytes_ = resident_bytes() - std::min(resident_bytes(), own_bytes_);
  limit_memory();
  session_->plan(klotski::workload_of({}, model_->description));  // refuses what can never fit
}

std::vector<std::string> LocalModel::lossy() const {
  return losses(session_->options().limits, weight_types(*model_));
}

std::vector<TokenId> LocalModel::prompt_of(std::string_view text) const {
  return encode_text(tokenizer_, config_, model_->description, text, false);
}

std::vector<TokenId> LocalModel::prompt_of_chat(const OrderedJson& messages,
                                                const OrderedJson& tools) const {
  if (!chat_template_) {
    fail(ErrorKind::usage, "chat: {} has no chat template; use generate() to continue a text",
         path_in_quotes(model_->folder));
  }
  OrderedJson context = chat_context(config_, messages);
  context["tools"] = tools;
  return encode_chat(tokenizer_, *chat_template_, std::move(context));
}

void LocalModel::expect(const LocalWork& work) {
  const std::lock_guard lock(mutex_);
  expected_ = expected_ ? larger(*expected_, work) : work;
}

int64_t LocalModel::submit(LocalRequest request) {
  check_tokens(model_->description, request.request.prompt, "prompt");
  Engine::workload(model_->description, request.request);
  if (!request.ignore_end) {
    const std::vector<TokenId>& ends = model_->description.end_tokens;
    request.request.stop_tokens.insert(request.request.stop_tokens.end(), ends.begin(), ends.end());
  }
  const std::lock_guard lock(mutex_);
  waiting_.push_back({next_id_, std::move(request), Clock::now()});
  return next_id_++;
}

void LocalModel::cancel(int64_t request) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const Waiting& one) { return one.id == request; });
  if (found != waiting_.end()) {
    waiting_.erase(found);
  } else {
    cancelled_.insert(request);
  }
}

bool LocalModel::busy() const {
  const std::lock_guard lock(mutex_);
  return in_engine_ > 0 || !waiting_.empty();
}

bool LocalModel::wants_more() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(waiting_) < kWaitingRows;
}

bool LocalModel::covered(const LocalWork& work) const {
  return session_->loaded() && planned_ && work.sequences <= planned_->sequences &&
         klotski::workload_of(work, model_->description).tokens_per_sequence <=
             klotski::workload_of(*planned_, model_->description).tokens_per_sequence;
}

// The session's limit counts all of the process, which had memory of its own before.
void LocalModel::limit_memory() {
  if (!ram_bytes_) return;
  session_->unload();
  ::malloc_trim(0);  // memory of an earlier load is not the program's
  const uint64_t now = resident_bytes();
  RunLimits limits = session_->options().limits;
  limits.ram_bytes = *ram_bytes_ + now - std::min(now, own_bytes_);
  session_->set_limits(limits);
}

void LocalModel::load_for(const LocalWork& work) {
  LocalWork wanted = larger(work, least_work_);
  if (planned_) {
    wanted = larger(wanted, *planned_);
    // Calls that grow by a request each are not worth a new plan each.
    if (work.sequences > planned_->sequences) {
      wanted.sequences = std::max(wanted.sequences, 2 * planned_->sequences);
    }
  }
  wanted.typical_tokens = work.typical_tokens;
  LocalWork usual = work;  // longer requests are then refused, one by one
  if (work.typical_tokens > work.generated_tokens) {
    usual.prompt_tokens = work.typical_tokens - work.generated_tokens;
  }
  limit_memory();
  // As `klotski run` does, a single sequence is planned without measuring the machine; with a GPU
  // the plan turns on times.
  const bool measures = wanted.sequences > 1 || session_->on_device();
  const auto load = [&](const LocalWork& planned) {
    session_->plan(klotski::workload_of(planned, model_->description),
                   measures ? PlanBy::prediction : PlanBy::rules);
    session_->load();
    planned_ = planned;
  };
  planned_.reset();
  const std::array attempts = {wanted, work, usual};
  for (size_t i = 0; !planned_; ++i) {
    try {
      load(attempts[i]);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::does_not_fit || i + 1 == attempts.size()) throw;
    }
  }
  most_running_ = session_->prepared().policy().group.sequences() + kWaitingRows;
}

void LocalModel::cancel_asked() {
  std::set<int64_t> asked;
  {
    const std::lock_guard lock(mutex_);
    asked.swap(cancelled_);
  }
  for (const int64_t request : asked) {
    const auto found = sequence_of_.find(request);
    if (found == sequence_of_.end()) continue;
    session_->engine().cancel(found->second);
    running_.erase(found->second);
    sequence_of_.erase(found);
  }
}

// Hands requests to the engine, in order. One that the plan does not cover waits until nothing runs
// and a new plan can be made.
void LocalModel::begin_waiting(std::vector<LocalUpdate>& updates) {
  while (running_.empty() || std::ssize(running_) < most_running_) {
    std::optional<Waiting> next;
    LocalWork work;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) return;
      work = work_of(waiting_.front().request);
      const bool idle = running_.empty() && updates.empty();
      if (idle && expected_) work = larger(work, *expected_);
      if (!idle && !covered(work)) return;
      if (idle) expected_.reset();
      next = std::move(waiting_.front());
      waiting_.pop_front();
      in_engine_ = std::ssize(running_) + 1;
    }
    const int64_t id = next->id;
    try {
      if (!covered(work)) load_for(work);
      begin(std::move(*next));
    } catch (const Error& error) {
      updates.push_back({.request = id,
                         .tokens = {},
                         .logprobs = {},
                         .text = {},
                         .finish = Finish::failed,
                         .error = error.what(),
                         .error_kind = error.kind()});
    }
  }
}

void LocalModel::begin(Waiting waiting) {
  LocalRequest& asked = waiting.request;
  const bool begins = asked.begins_a_text || model_->description.encoder;
  TextStream text(tokenizer_, std::move(asked.stop_strings),
                  begins ? std::span<const TokenId>() : asked.request.prompt);
  const SequenceId sequence = session_->engine().submit(std::move(asked.request));
  sequence_of_.emplace(waiting.id, sequence);
  running_.emplace(
      sequence,
      Running{
          .news = {.request = waiting.id, .tokens = {}, .logprobs = {}, .text = {}, .error = {}},
          .text = std::move(text),
          .streamed = asked.streamed,
          .submitted = waiting.submitted});
}

void LocalModel::take(const Progress& progress, std::vector<LocalUpdate>& updates) {
  const auto found = running_.find(progress.sequence);
  if (found == running_.end()) return;
  Running& running = found->second;
  LocalUpdate& news = running.news;
  news.finish = progress.finish;
  if (progress.finish == Finish::failed) {
    news.error = progress.error;
    news.error_kind = progress.error_kind;
  } else {
    if (!std::exchange(running.begun, true)) {
      news.first_token_seconds = seconds_since(running.submitted);
    }
    news.tokens.push_back(progress.token);
    if (progress.logprobs) news.logprobs.push_back(*progress.logprobs);
    // An end token is not text.
    if (progress.finish != Finish::stop_token) news.text += running.text.push(progress.token);
    news.stopped = running.text.stopped();
    if (news.stopped && progress.finish == Finish::not_yet) {
      session_->engine().cancel(progress.sequence);
    }
  }
  const bool ends = progress.finish != Finish::not_yet || news.stopped;
  if (!ends && !running.streamed) return;
  if (ends) {
    news.text += running.text.finish();
    news.seconds = seconds_since(running.submitted);
  }
  LocalUpdate next{.request = news.request,
                   .tokens = {},
                   .logprobs = {},
                   .text = {},
                   .error = {},
                   .first_token_seconds = news.first_token_seconds};
  updates.push_back(std::exchange(news, std::move(next)));
  if (!ends) return;
  sequence_of_.erase(updates.back().request);
  running_.erase(found);
}

std::vector<LocalUpdate> LocalModel::step() {
  const Clock::time_point start = Clock::now();
  std::vector<LocalUpdate> updates;
  do {
    cancel_asked();
    begin_waiting(updates);
    if (!running_.empty()) {
      for (const Progress& progress : session_->engine().step()) take(progress, updates);
    }
    const std::lock_guard lock(mutex_);
    in_engine_ = std::ssize(running_);
  } while (updates.empty() && !running_.empty() && Clock::now() - start < kStepTime);
  return updates;
}

void LocalModel::refuse_while_busy(std::string_view what) const {
  if (busy()) {
    fail(ErrorKind::usage, "{}: expected no unfinished requests; wait for them or cancel them",
         what);
  }
}

Planning LocalModel::explain(const LocalWork& work) {
  refuse_while_busy("plan");
  planned_.reset();
  limit_memory();
  return session_->explain(klotski::workload_of(work, model_->description));
}

Json LocalModel::plan(const LocalWork& work) { return plan_json(explain(work)); }

RoutedTokens LocalModel::routed_tokens(const std::vector<std::vector<TokenId>>& texts) {
  refuse_while_busy("routing_trace");
  RoutedTokens routed{.shape = routing_shape(model_->description),
                      .sequence = {},
                      .position = {},
                      .token = {},
                      .choices = {}};
  if (routed.shape.layers.empty()) {
    fail(ErrorKind::usage, "{} has no routed layers: there is nothing to trace",
         path_in_quotes(model_->folder));
  }
  LocalWork work{.sequences = std::max<int64_t>(1, std::ssize(texts))};
  for (const auto& text : texts) {
    check_tokens(model_->description, text, "text");
    work.prompt_tokens = std::max<int64_t>(work.prompt_tokens, std::ssize(text));
  }
  if (!covered(work)) load_for(work);
  pass_texts(session_->pipeline(), texts,
             [&](std::span<const RoutedPiece> pieces, const GroupChoices& choices) {
               for (const RoutedPiece& piece : pieces) {
                 for (size_t i = 0; i < piece.tokens.size(); ++i) {
                   routed.sequence.push_back(static_cast<uint32_t>(piece.text));
                   routed.position.push_back(static_cast<uint32_t>(piece.first_position) +
                                             static_cast<uint32_t>(i));
                   routed.token.push_back(piece.tokens[i]);
                   for (size_t layer = 0; layer < choices.known_layers(); ++layer) {
                     for (const ExpertId expert :
                          choices.token(layer, piece.first_row + static_cast<int64_t>(i))) {
                       routed.choices.push_back(static_cast<uint16_t>(expert.value));
                     }
                   }
                 }
               }
             });
  return routed;
}

std::vector<std::string> LocalModel::take_remarks() { return std::exchange(remarks_, {}); }

Json LocalModel::report() {
  if (!session_->loaded()) return nullptr;
  const PipelineReport report = session_->report();
  const RunPlan& plan = session_->prepared().plan();
  return {{"passes", report.passes},
          {"drafted_tokens", report.drafts.drafted},
          {"accepted_tokens", report.drafts.accepted},
          {"tokens", report.tokens},
          {"expert_requests", report.experts.requests()},
          {"expert_hits", report.experts.hits},
          {"planned_bytes", plan.memory.total_bytes()},
          {"limit_bytes", plan.memory.limit_bytes},
          {"sequences_at_once", plan.policy.group.sequences()}};
}

}  // namespace klotski
