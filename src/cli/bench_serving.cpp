#include "cli/bench_serving.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "cli/bench_evidence.h"
#include "cli/command.h"
#include "session/serving.h"

namespace klotski {

namespace {

constexpr int64_t kUsualRequests = 64;  // of a trace

// A setting with the replays under it, of which the median by time a token counts.
struct ServedSetting {
  const Setting& setting;
  std::vector<ServingMeasurement> runs{};

  const ServingMeasurement& median() const { return runs[runs.size() / 2]; }
};

struct TracedWork {
  ServedWork work;
  double recorded_rate = 0.0;  // requests a second
  double rate = 0.0;           // of the replay
};

TracedWork traced_work(const BenchOptions& options, const Session& session) {
  const std::string trace = read_argument_file(options.arrivals, "--arrivals", kMaxTextBytes);
  std::vector<Arrival> arrivals =
      read_arrivals(trace, fmt::format("--arrivals {}", in_quotes(options.arrivals, 300)));
  const auto wanted = static_cast<size_t>(options.sequences.value_or(kUsualRequests));
  arrivals.resize(std::min(wanted, arrivals.size()));
  TracedWork traced{.work = {}, .recorded_rate = arrival_rate(arrivals)};
  if (options.rate) set_arrival_rate(arrivals, *options.rate);
  traced.rate = arrival_rate(arrivals);
  const Tokenizer tokenizer = text_tokenizer(options, session);
  const std::string text = text_or_sample(options.text, "--text", kMaxTextBytes);
  traced.work = work_from_arrivals(arrivals, options.length_scale, tokenizer.encode(text, {}),
                                   session.description());
  return traced;
}

// Texts that a setting computes at once, unless the plan finds that fewer fit.
int64_t at_once(const RunLimits& limits) {
  return limits.micro_batch.value_or(kBenchBatch) * limits.micro_batches.value_or(kBenchBatch);
}

void check_tokens(const std::vector<ServedSetting>& settings) {
  const auto& expected = settings.front().runs.front().requests;
  for (const ServedSetting& served : settings) {
    for (const ServingMeasurement& run : served.runs) {
      const bool same = std::equal(
          expected.begin(), expected.end(), run.requests.begin(), run.requests.end(),
          [](const ServedRequest& a, const ServedRequest& b) { return a.tokens == b.tokens; });
      if (!same) {
        fail(ErrorKind::internal, "{} generated other tokens than {}", served.setting.name,
             settings.front().setting.name);
      }
    }
  }
}

std::vector<ServedSetting> serve_settings(const BenchOptions& options,
                                          const std::vector<Setting>& settings, Session& session,
                                          const ServedWork& work) {
  std::vector<ServedSetting> served;
  for (const Setting& setting : settings) served.push_back({setting});
  for (int64_t round = 0; round < options.repeat; ++round) {
    for (ServedSetting& one : served) {
      const RunLimits& limits = one.setting.limits;
      session.set_limits(limits);
      write_err(
          fmt::format("measuring {} ({} of {})\n", one.setting.name, round + 1, options.repeat));
      SteadyClock clock;
      StatusLine status("requests answered", "requests");
      one.runs.push_back(measure_serving(session, work, at_once(limits), clock, [&](size_t ended) {
        status.update(ended, work.requests.size());
      }));
      write_setting_files(options, one.setting, session);
    }
  }
  for (ServedSetting& one : served) {
    const auto pace = [&](const ServingMeasurement& run) {
      return figures_of(run, options.target).per_token.median;
    };
    std::sort(one.runs.begin(), one.runs.end(),
              [&](const auto& a, const auto& b) { return pace(a) < pace(b); });
  }
  if (!session.on_device()) check_tokens(served);
  return served;
}

// Bounds and mean of the tokens of prompts or answers, in words.
std::string lengths_in_words(std::string_view what, const std::vector<int64_t>& lengths) {
  const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
  double sum = 0.0;
  for (const int64_t length : lengths) sum += static_cast<double>(length);
  return fmt::format("{} of {} to {} tokens (mean {:.0f})", what, *least, *most,
                     sum / static_cast<double>(lengths.size()));
}

std::string work_in_words(const BenchOptions& options, const TracedWork& traced) {
  std::vector<int64_t> prompts;
  std::vector<int64_t> answers;
  for (const TimedRequest& request : traced.work.requests) {
    prompts.push_back(std::ssize(request.prompt));
    answers.push_back(request.generate);
  }
  std::string text =
      fmt::format("{} requests of {} at {:.3g} a second (recorded: {:.3g}), {}, {}", prompts.size(),
                  in_quotes(options.arrivals, 300), traced.rate, traced.recorded_rate,
                  lengths_in_words("prompts", prompts), lengths_in_words("answers", answers));
  if (traced.work.cut > 0) {
    text += fmt::format("; {} were cut to the model's positions", traced.work.cut);
  }
  return text + fmt::format(
                    ".\nGoodput counts requests with their first token within {} s and the others "
                    "within {} s each.\n",
                    options.target.first_token, options.target.per_token);
}

std::string served_table(const BenchOptions& options, const std::vector<ServedSetting>& settings) {
  std::string text =
      "| setting | n x batch | first token s, median | p99 | s a token, median | p99 | goodput "
      "requests/s | within | requests/s | tokens/s | experts found | preempted | prefix tokens "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const ServedSetting& served : settings) {
    const ServingMeasurement& measured = served.median();
    const ServingFigures figures = figures_of(measured, options.target);
    const GroupShape& group = measured.plan.policy.group;
    text += fmt::format(
        "| {} | {} x {} | {:.3f} | {:.3f} | {:.4f} | {:.4f} | {:.3f} | {:.0f} % | {:.3f} | {:.1f} "
        "| {:.1f} % | {} | {} |\n",
        served.setting.name, group.micro_batches, group.micro_batch, figures.first_token.median,
        figures.first_token.p99, figures.per_token.median, figures.per_token.p99, figures.goodput,
        100.0 * static_cast<double>(figures.within_target) /
            static_cast<double>(measured.requests.size()),
        figures.requests_per_second, figures.tokens_per_second,
        100.0 * measured.report.experts.hit_share(), measured.counters.preemptions,
        measured.counters.prefix.tokens);
  }
  return text;
}

Json served_json(const BenchOptions& options, const ServedSetting& served) {
  const ServingMeasurement& measured = served.median();
  const ServingFigures figures = figures_of(measured, options.target);
  const GroupShape& group = measured.plan.policy.group;
  const auto quantiles = [](const Quantiles& of) {
    return Json{{"median", of.median}, {"p99", of.p99}};
  };
  Json runs = Json::array();
  for (const ServingMeasurement& run : served.runs) {
    runs.push_back(figures_of(run, options.target).per_token.median);
  }
  return {{"setting", served.setting.name},
          {"strategy", strategy_name(measured.plan.policy.strategy)},
          {"n_batches", group.micro_batches},
          {"micro_batch", group.micro_batch},
          {"first_token_seconds", quantiles(figures.first_token)},
          {"seconds_per_token", quantiles(figures.per_token)},
          {"median_seconds_per_token_of_all_runs", runs},
          {"goodput_requests_per_second", figures.goodput},
          {"requests_within_target", figures.within_target},
          {"requests_per_second", figures.requests_per_second},
          {"tokens_per_second", figures.tokens_per_second},
          {"seconds", measured.seconds},
          {"expert_hits", measured.report.experts.hits},
          {"expert_misses", measured.report.experts.misses},
          {"preemptions", measured.counters.preemptions},
          {"prefix_tokens", measured.counters.prefix.tokens}};
}

}  // namespace

void add_serving_flags(CLI::App& command, BenchOptions& options) {
  command
      .add_option("--arrivals", options.arrivals,
                  "Replay the first requests (--sequences, default 64) of a recorded trace as a "
                  "server would get them: Azure's CSV or Mooncake's JSON lines")
      ->type_name("FILE");
  add_number(command, "--rate", {1e-6, 1e6},
             "With --arrivals, let X requests a second come on average (default: as recorded)",
             [&options](double rate) { options.rate = rate; });
  add_number(command, "--length-scale", {1e-6, 1e3},
             "With --arrivals, make prompts and answers X times as long (default 1)",
             [&options](double scale) { options.length_scale = scale; });
  add_number(command, "--first-within", {1e-6, 1e6},
             "With --arrivals, goodput counts requests whose first token comes within X seconds "
             "(default 1) ...",
             [&options](double seconds) { options.target.first_token = seconds; });
  add_number(command, "--token-within", {1e-6, 1e6},
             "... and whose others take at most X seconds each on average (default 0.1)",
             [&options](double seconds) { options.target.per_token = seconds; });
}

void check_serving_flags(const CLI::App& command, const BenchOptions& options) {
  if (options.arrivals.empty()) {
    for (const char* name : {"--rate", "--length-scale", "--first-within", "--token-within"}) {
      if (command.count(name) > 0) fail(ErrorKind::usage, "{}: expected --arrivals with it", name);
    }
    return;
  }
  for (const char* name : {"--compare", "--sweep", "--routing", "--follow-text", "--prompt-tokens",
                           "--generate", "--n-values", "--batch-values"}) {
    if (command.count(name) > 0) {
      fail(ErrorKind::usage, "--arrivals and {}: expected one of them", name);
    }
  }
}

ServingReport serving_report(const BenchOptions& options, const std::vector<Setting>& settings,
                             Session& session) {
  const TracedWork traced = traced_work(options, session);
  const std::vector<ServedSetting> served = serve_settings(options, settings, session, traced.work);
  RunsOfSettings runs;
  Json results = Json::array();
  for (const ServedSetting& one : served) {
    results.push_back(served_json(options, one));
    runs.push_back(results.back()["median_seconds_per_token_of_all_runs"]);
  }
  ServingReport report{
      .markdown = work_in_words(options, traced) + "\n" + served_table(options, served),
      .json = evidence_of(runs, session)};
  report.json.update({{"model", session.description().family},
                      {"precision", precision_name(options.flags.options.limits.precision)},
                      {"requests", traced.work.requests.size()},
                      {"cut_requests", traced.work.cut},
                      {"recorded_requests_per_second", traced.recorded_rate},
                      {"offered_requests_per_second", traced.rate},
                      {"target",
                       {{"first_token_seconds", options.target.first_token},
                        {"seconds_per_token", options.target.per_token}}},
                      {"settings", std::move(results)}});
  return report;
}

}  // namespace klotski
