#include "session/serving.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "base/error.h"
#include "engine/engine.h"

namespace klotski {

namespace {

int64_t scaled(int64_t tokens, double scale) {
  return std::max<int64_t>(1, std::llround(static_cast<double>(tokens) * scale));
}

// Appends the first tokens of the block with this id.
void append_block(std::vector<TokenId>& prompt, int64_t id, int64_t tokens,
                  std::span<const TokenId> text, int64_t vocabulary) {
  constexpr uint64_t kStride = 7919;  // between the stretches of ids that follow each other
  for (int64_t i = 0; i < tokens; ++i) {
    if (i < 2) {
      prompt.push_back(static_cast<TokenId>((i == 0 ? id : id / vocabulary) % vocabulary));
    } else {
      const uint64_t at = static_cast<uint64_t>(id) * kStride + static_cast<uint64_t>(i);
      prompt.push_back(text[at % text.size()]);
    }
  }
}

}  // namespace

ServedWork work_from_arrivals(std::span<const Arrival> arrivals, double length_scale,
                              std::span<const TokenId> text, const ModelDescription& model) {
  if (text.empty()) fail(ErrorKind::usage, "--text: expected a text, found none");
  const int64_t positions = model.max_positions - (model.encoder ? 1 : 0);
  const int64_t block = scaled(kBlockTokens, length_scale);
  ServedWork work;
  for (const Arrival& arrival : arrivals) {
    const int64_t wanted = scaled(arrival.prompt_tokens, length_scale);
    const int64_t answer = scaled(arrival.generated_tokens, length_scale);
    TimedRequest request{
        .arrival = arrival.seconds, .prompt = {}, .generate = std::min(answer, positions / 2)};
    const int64_t length = std::min(wanted, positions - request.generate);
    work.cut += length < wanted || request.generate < answer ? 1 : 0;
    const auto left = [&] { return length - std::ssize(request.prompt); };
    for (size_t i = 0; i + 1 < arrival.blocks.size() && left() > 0; ++i) {
      append_block(request.prompt, arrival.blocks[i], std::min(block, left()), text,
                   model.vocabulary);
    }
    const auto last = arrival.blocks.empty() ? std::ssize(work.requests) : arrival.blocks.back();
    append_block(request.prompt, last, left(), text, model.vocabulary);
    work.requests.push_back(std::move(request));
  }
  return work;
}

Workload ServedWork::workload(const ModelDescription& model, int64_t at_once) const {
  const int64_t known = model.encoder ? 1 : 0;  // the decoder begins with a token of its own
  int64_t longest = 0;
  int64_t longest_prompt = 0;
  int64_t all = 0;
  int64_t generated = 0;
  for (const TimedRequest& request : requests) {
    const int64_t prompt = std::ssize(request.prompt) + known;
    longest_prompt = std::max(longest_prompt, prompt);
    longest = std::max(longest, prompt + request.generate);
    all += prompt + request.generate;
    generated += request.generate;
  }
  const auto count = std::max<int64_t>(1, std::ssize(requests));
  return {.sequences = at_once,
          .tokens_per_sequence = longest,
          .prompt_tokens = longest_prompt,
          .typical_tokens = all / count,
          .generated_tokens = std::max<int64_t>(1, generated / count)};
}

double SteadyClock::seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void SteadyClock::wait_until(double seconds) {
  const std::chrono::duration<double> after(seconds);
  std::this_thread::sleep_until(start_ +
                                std::chrono::ceil<std::chrono::steady_clock::duration>(after));
}

std::optional<double> ServedRequest::per_token() const {
  if (tokens.size() < 2) return std::nullopt;
  return (last_token - first_token) / static_cast<double>(tokens.size() - 1);
}

namespace {

// Requests on their way through an engine that has had no others.
class Replay {
 public:
  Replay(Engine& engine, const ServedWork& work, ReplayClock& clock)
      : engine_(engine), work_(work), clock_(clock), start_(clock.seconds()) {
    served_.resize(work.requests.size());
  }

  bool over() const { return sent_ == work_.requests.size() && engine_.idle(); }
  size_t ended() const { return ended_; }

  // Sends the requests that have come, and waits for one where there is nothing to compute.
  void send() {
    double now = seconds();
    if (engine_.idle() && work_.requests[sent_].arrival > now) {
      now = work_.requests[sent_].arrival;
      clock_.wait_until(start_ + now);
    }
    for (; sent_ < served_.size() && work_.requests[sent_].arrival <= now; ++sent_) {
      const TimedRequest& request = work_.requests[sent_];
      engine_.submit({.prompt = request.prompt,
                      .sampling = {},
                      .max_tokens = request.generate,
                      .stop_tokens = {}});
    }
  }

  void compute() {
    const std::vector<Progress> gained = engine_.step();
    const double now = seconds();
    for (const Progress& progress : gained) {
      if (progress.finish == Finish::failed) fail(progress.error_kind, "{}", progress.error);
      const auto index = static_cast<size_t>(progress.sequence.value);
      ServedRequest& served = served_[index];
      served.last_token = now - work_.requests[index].arrival;
      if (served.tokens.empty()) served.first_token = served.last_token;
      served.tokens.push_back(progress.token);
      ended_ += progress.finish != Finish::not_yet ? 1 : 0;
    }
  }

  double seconds() { return clock_.seconds() - start_; }
  std::vector<ServedRequest> take() { return std::move(served_); }

 private:
  Engine& engine_;
  const ServedWork& work_;
  ReplayClock& clock_;
  const double start_;
  size_t sent_ = 0;
  size_t ended_ = 0;
  std::vector<ServedRequest> served_;
};

}  // namespace

ServingMeasurement measure_serving(Session& session, const ServedWork& work, int64_t at_once,
                                   ReplayClock& clock,
                                   const std::function<void(size_t ended)>& ended) {
  session.plan(work.workload(session.description(), at_once),
               session.on_device() ? PlanBy::prediction : PlanBy::rules);
  session.load();
  if (!session.on_device()) session.preload();
  Replay replay(session.engine(), work, clock);
  while (!replay.over()) {
    replay.send();
    replay.compute();
    if (ended) ended(replay.ended());
  }
  ServingMeasurement result;
  result.seconds = replay.seconds();
  result.plan = session.prepared().plan();
  result.report = session.report();
  result.counters = session.engine().counters();
  result.requests = replay.take();
  return result;
}

Quantiles quantiles_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto of_share = [&](double share) {
    const double rank = std::ceil(share * static_cast<double>(values.size()));
    return values[static_cast<size_t>(std::max(rank, 1.0)) - 1];
  };
  return {.median = of_share(0.5), .p99 = of_share(0.99)};
}

ServingFigures figures_of(const ServingMeasurement& measured, const ServingTarget& target) {
  ServingFigures figures;
  std::vector<double> first;
  std::vector<double> next;
  size_t tokens = 0;
  for (const ServedRequest& request : measured.requests) {
    const std::optional<double> per_token = request.per_token();
    first.push_back(request.first_token);
    if (per_token) next.push_back(*per_token);
    tokens += request.tokens.size();
    const bool good =
        request.first_token <= target.first_token && per_token.value_or(0.0) <= target.per_token;
    figures.within_target += good ? 1 : 0;
  }
  const double seconds = std::max(measured.seconds, 1e-9);
  figures.first_token = quantiles_of(std::move(first));
  figures.per_token = quantiles_of(std::move(next));
  figures.requests_per_second = static_cast<double>(measured.requests.size()) / seconds;
  figures.tokens_per_second = static_cast<double>(tokens) / seconds;
  figures.goodput = static_cast<double>(figures.within_target) / seconds;
  return figures;
}

}  // namespace klotski
