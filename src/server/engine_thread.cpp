#include "server/engine_thread.h"

#include <algorithm>
#include <utility>

namespace klotski {

namespace {

using Clock = GenerationJob::Clock;

// Figures are gathered this often at most: that takes locks and memory.
constexpr std::chrono::milliseconds kPublishEvery(100);

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// An error of the engine while it computes, whatever its kind: the request was a good one.
ApiError engine_failed(const std::string& message) {
  return {Status::unavailable, message, "", "engine_failed"};
}

// The error of a request that the engine does not take.
ApiError not_taken(const Error& error) {
  const bool bad_request =
      error.kind() == ErrorKind::usage || error.kind() == ErrorKind::does_not_fit;
  return bad_request ? ApiError{Status::bad_request, error.what()} : engine_failed(error.what());
}

}  // namespace

EngineThread::EngineThread(const ServedModel& served, Metrics& metrics, Options options)
    : served_(served), metrics_(metrics), options_(std::move(options)) {}

void EngineThread::start() {
  thread_ = std::thread([this] { work(); });
}

EngineThread::~EngineThread() { stop(); }

EngineState EngineThread::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

bool EngineThread::has_room(int64_t choices) const {
  const std::lock_guard lock(mutex_);
  return posted_choices_ + waiting_choices_ + choices <= options_.most_waiting;
}

bool EngineThread::busy() const {
  const std::lock_guard lock(mutex_);
  return posted_choices_ + unfinished_choices_ > 0;
}

std::exception_ptr EngineThread::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void EngineThread::submit(GenerationJob job) {
  const auto choices = std::ssize(job.choices);
  if (choices > options_.most_waiting) {
    throw ApiError(Status::bad_request,
                   fmt::format("n: expected at most {} choices of all prompts, found {}",
                               options_.most_waiting, choices),
                   "n");
  }
  const std::lock_guard lock(mutex_);
  if (state_ != EngineState::ready || stop_asked_) {
    throw ApiError(Status::unavailable, "the model is not loaded", "", "not_ready");
  }
  if (posted_choices_ + waiting_choices_ + choices > options_.most_waiting) {
    throw ApiError(Status::too_many_requests, "the queue is full; try again later", "",
                   "queue_full");
  }
  posted_choices_ += choices;
  mailbox_.push_back(std::move(job));
  wakes_.notify_one();
}

void EngineThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_asked_ = true;
    wakes_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void EngineThread::work() {
  std::exception_ptr failure;
  try {
    const std::unique_ptr<Session> session = options_.open_session();
    publish(*session, true);
    {
      const std::lock_guard lock(mutex_);
      state_ = EngineState::ready;
    }
    if (options_.loaded) options_.loaded();
    serve(*session);
    if (options_.closing) options_.closing(*session);
  } catch (...) {
    failure = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    state_ = EngineState::stopped;
    failure_ = failure;
  }
  fail_all(failure ? engine_failed("the engine failed")
                   : ApiError{Status::unavailable, "the server is stopping", "", "stopping"});
  if (options_.stopped) options_.stopped();
}

// Nothing where the thread is asked to stop.
std::optional<std::vector<GenerationJob>> EngineThread::next_jobs(bool wait) {
  std::unique_lock lock(mutex_);
  if (wait) wakes_.wait(lock, [&] { return stop_asked_ || !mailbox_.empty(); });
  if (stop_asked_) return std::nullopt;
  return std::exchange(mailbox_, {});
}

void EngineThread::serve(Session& session) {
  Engine& engine = session.engine();
  while (auto jobs = next_jobs(engine.idle())) {
    for (GenerationJob& job : *jobs) begin(engine, std::move(job));
    drop_unwanted(engine);
    for (const Progress& progress : engine.step()) take(engine, progress);
    publish(session, engine.idle());
    wake_readers();
  }
  for (const auto& [id, running] : running_) engine.cancel(id);
}

void EngineThread::begin(Engine& engine, GenerationJob job) {
  std::vector<SequenceId> started;
  touched_.push_back(job.stream);
  try {
    for (size_t i = 0; i < job.choices.size(); ++i) {
      PreparedChoice& choice = job.choices[i];
      TextStream text(served_.tokenizer, std::move(choice.stop_strings),
                      choice.continues_prompt ? std::span<const TokenId>(choice.request.prompt)
                                              : std::span<const TokenId>());
      const auto prompt_tokens = std::ssize(choice.request.prompt);
      const SequenceId id = engine.submit(std::move(choice.request));
      started.push_back(id);
      running_.emplace(id, Running{.stream = job.stream,
                                   .choice = i,
                                   .text = std::move(text),
                                   .prompt_tokens = prompt_tokens,
                                   .arrival = job.arrival,
                                   .last_token = job.arrival,
                                   .deadline = job.deadline});
    }
  } catch (const Error& error) {
    for (const SequenceId id : started) drop(engine, id);
    job.stream->fail(not_taken(error));
  }
  const std::lock_guard lock(mutex_);
  posted_choices_ -= std::ssize(job.choices);
  waiting_choices_ = engine.waiting();
  unfinished_choices_ = std::ssize(running_);
}

void EngineThread::drop(Engine& engine, SequenceId id) {
  engine.cancel(id);
  running_.erase(id);
  metrics_.count_cancelled();
}

void EngineThread::drop_unwanted(Engine& engine) {
  const Clock::time_point now = Clock::now();
  std::vector<SequenceId> unwanted;
  for (const auto& [id, running] : running_) {
    const bool late = running.deadline && *running.deadline < now;
    if (late) {
      running.stream->fail({Status::timeout, "the request took longer than it may", "", "timeout"});
      touched_.push_back(running.stream);
    }
    if (late || running.stream->abandoned()) unwanted.push_back(id);
  }
  for (const SequenceId id : unwanted) drop(engine, id);
}

void EngineThread::time_token(Running& running) {
  const Clock::time_point now = Clock::now();
  const double seconds = seconds_between(running.last_token, now);
  if (running.tokens++ == 0) {
    metrics_.count_prompt(running.prompt_tokens);
    metrics_.first_token_after(seconds);
  } else {
    metrics_.next_token_after(seconds);
  }
  metrics_.count_tokens(1, now);
  running.last_token = now;
}

void EngineThread::take(Engine& engine, const Progress& progress) {
  const auto found = running_.find(progress.sequence);
  if (found == running_.end()) return;
  Running& running = found->second;
  touched_.push_back(running.stream);
  if (progress.finish == Finish::failed) {
    running.stream->fail(engine_failed(progress.error));
    running_.erase(found);
    return;
  }
  time_token(running);
  ChoiceUpdate update{.choice = running.choice, .text = {}, .tokens = 1};
  const bool end_token = progress.finish == Finish::stop_token;  // is not text
  if (!end_token) update.text = running.text.push(progress.token);
  if (progress.logprobs && !end_token) {
    update.details.push_back({progress.token, *progress.logprobs});
  }
  const bool ends = progress.finish != Finish::not_yet || running.text.stopped();
  if (ends) {
    const bool by_length = progress.finish == Finish::length && !running.text.stopped();
    update.text += running.text.finish();
    update.drafts = progress.drafts;
    update.finish = by_length ? FinishReason::length : FinishReason::stop;
  }
  if (!running.stream->push(std::move(update))) {
    drop(engine, progress.sequence);
  } else if (ends) {
    if (progress.finish == Finish::not_yet) engine.cancel(progress.sequence);
    running_.erase(found);
  }
}

void EngineThread::publish(Session& session, bool at_once) {
  {
    const std::lock_guard lock(mutex_);
    waiting_choices_ = session.engine().waiting();
    unfinished_choices_ = std::ssize(running_);
  }
  const Clock::time_point now = Clock::now();
  if (!at_once && now < published_ + kPublishEvery) return;
  published_ = now;
  metrics_.set_engine(figures_of(session));
}

void EngineThread::wake_readers() {
  std::sort(touched_.begin(), touched_.end());
  touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
  if (!touched_.empty() && options_.notify) options_.notify(std::exchange(touched_, {}));
  touched_.clear();
}

void EngineThread::fail_all(const ApiError& error) {
  std::vector<GenerationJob> unread;
  {
    const std::lock_guard lock(mutex_);
    unread = std::exchange(mailbox_, {});
    posted_choices_ = waiting_choices_ = unfinished_choices_ = 0;
  }
  for (const GenerationJob& job : unread) {
    job.stream->fail(error);
    touched_.push_back(job.stream);
  }
  for (const auto& [id, running] : running_) {
    running.stream->fail(error);
    touched_.push_back(running.stream);
  }
  running_.clear();
  wake_readers();
}

}  // namespace klotski
