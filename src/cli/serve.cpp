#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>

#include "base/bytes.h"
#include "base/error.h"
#include "base/noise.h"
#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/session_output.h"
#include "cli/signals.h"
#include "probe/probe.h"
#include "server/server.h"
#include "session/serving.h"
#include "session/session_options.h"

namespace klotski {

namespace {

constexpr int64_t kServedPositions = 8192;  // context of a request, where the model has more
constexpr int64_t kDrawnSpans = 512;        // kept for the dashboard's timeline

struct ServeOptions {
  ModelFlags model;
  SessionFlags flags;
  ServerOptions server;
  std::string served_name;
  std::string key_file;
  int64_t max_tokens = 256;
  int64_t sequences = 16;
  std::optional<int64_t> context;
  EngineOptions engine = kServingEngine;
};

// The keys of the file, one a line.
std::vector<std::string> read_keys(const std::string& file) {
  std::istringstream lines(read_argument_file(file, "--api-key-file", kMiB));
  std::vector<std::string> keys;
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) keys.push_back(line);
  }
  if (keys.empty()) {
    fail(ErrorKind::usage, "--api-key-file {}: expected a key in each line, found none",
         in_quotes(file));
  }
  return keys;
}

// Every connection takes a descriptor; systems allow few where nobody asks for more.
void allow_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

Workload expected_work(const ServeOptions& options, const ModelDescription& model) {
  // An encoder has positions of its own.
  const int64_t positions = std::min((model.encoder ? 2 : 1) * model.max_positions,
                                     options.context.value_or(kServedPositions));
  const int64_t generated = std::min(options.max_tokens, positions / 2);
  return {.sequences = options.sequences,
          .tokens_per_sequence = positions,
          .prompt_tokens = positions,
          .input_bytes = options.server.limits.body_bytes,  // one at a time becomes tokens
          .typical_tokens = std::min(positions, 2 * generated),
          .generated_tokens = std::max<int64_t>(1, generated)};
}

std::unique_ptr<Session> load_session(const ServeOptions& options, const ServedModel& served) {
  SessionOptions session_options = options.flags.session_options();
  session_options.engine = options.engine;
  session_options.pipeline.keep_spans = std::max(session_options.pipeline.keep_spans, kDrawnSpans);
  auto session = std::make_unique<Session>(served.model, std::move(session_options),
                                           events_on_stderr(options.flags));
  session->plan(expected_work(options, served.description()),
                session->on_device() ? PlanBy::prediction : PlanBy::rules);
  session->load();
  if (!session->on_device()) session->preload();
  warm_up(options.flags, *session, served.tokenizer);
  return session;
}

// A folder for the files and batches of a model by its name; empty where users have no cache.
std::string usual_jobs_folder(const std::string& name) {
  const std::optional<std::filesystem::path> cache = cache_folder();
  if (!cache) return "";
  return *cache / "jobs" / fmt::format("{:016x}", noise_key(0, name));
}

int serve_command(ServeOptions options) {
  if (!options.key_file.empty()) options.server.api.keys = read_keys(options.key_file);
  allow_descriptors();
  ServedModel served =
      serve_model(open_model(options.model),
                  options.served_name.empty() ? options.model.name() : options.served_name);
  served.max_tokens = options.max_tokens;
  served.lossy = losses(options.flags.options.limits, weight_types(*served.model));
  if (options.server.jobs_folder.empty()) {
    options.server.jobs_folder = usual_jobs_folder(served.name);
    options.server.needs_jobs = false;
  }
  options.server.batch_rows = static_cast<size_t>(options.sequences);
  const bool drained =
      serve(served, options.server,
            {.open_session = [&] { return load_session(options, served); },
             .listening = [](const std::string& url) { write_err("listening on " + url + "\n"); },
             .loaded =
                 [] {
                   let_signals_ask();
                   write_err("ready\n");
                 },
             .closing = [&](Session& session) { write_session_files(options.flags, session); },
             .stop_asked = [] { return signal_asking_to_stop() != 0; }});
  return drained ? 0 : 128 + signal_asking_to_stop();
}

void add_server_flags(CLI::App& command, const std::shared_ptr<ServeOptions>& options) {
  ServerOptions& server = options->server;
  command
      .add_option("--host", server.host,
                  "Address to listen on (default 127.0.0.1: this machine alone; 0.0.0.0 or :: for "
                  "all)")
      ->type_name("ADDRESS");
  add_integer(command, "--port", {0, 65535}, "Port to listen on; 0 picks a free one (default 8080)",
              [&server](int64_t value) { server.port = static_cast<uint16_t>(value); });
  command
      .add_option("--api-key-file", options->key_file,
                  "Answer only requests with one of the keys in this file, one a line, as "
                  "Authorization: Bearer KEY; /health and /ready need none")
      ->type_name("FILE");
  command
      .add_option("--served-name", options->served_name,
                  "Name of the model in requests and responses (default: MODEL as given)")
      ->type_name("NAME");
  command
      .add_option(
          "--jobs-folder", server.jobs_folder,
          "Keep files and batches (/v1/files, /v1/batches) in this folder; a batch goes on "
          "with the next server where this one is stopped or killed (default: a folder of the "
          "model's name in the cache folder, unless another server uses it)")
      ->type_name("FOLDER");
  add_integer(command, "--max-queue", {1, 1 << 20},
              "At most N texts wait to be computed; beyond that requests get status 429 (default "
              "256)",
              [&server](int64_t value) { server.most_waiting = value; });
  add_integer(command, "--max-connections", {1, 1 << 20},
              "At most N open connections (default 4096)",
              [&server](int64_t value) { server.limits.connections = static_cast<size_t>(value); });
  add_number(command, "--request-timeout", {0.001, 1e6},
             "End a request that takes longer than X seconds (default: none does)",
             [&server](double seconds) {
               server.api.request_time =
                   std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000.0));
             });
  add_number(command, "--drain", {0.0, 1e6},
             "When asked to stop, let running requests go on for X seconds (default 5)",
             [&server](double seconds) {
               server.drain = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000.0));
             });
}

}  // namespace

void add_serve_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command =
      app.add_subcommand("serve", "Answer HTTP requests in OpenAI's form, many at a time");
  add_model_flags(*command, options->model);
  add_server_flags(*command, options);
  add_integer(*command, "-n,--max-tokens", {1, 1 << 30},
              "Generate at most N tokens for a request that does not say how many (default 256)",
              [options](int64_t value) { options->max_tokens = value; });
  add_integer(*command, "--sequences", {1, 1 << 20},
              "Plan for N texts that are generated at once (default 16)",
              [options](int64_t value) { options->sequences = value; });
  add_integer(*command, "--context", {1, 1 << 30},
              "Plan for requests of at most N tokens, prompt and answer together (default 8192, or "
              "all positions of a model that has fewer)",
              [options](int64_t value) { options->context = value; });
  add_integer(
      *command, "--pass-rows", {1, 1 << 30},
      "Compute at most N tokens in a pass while texts are generated: longer prompts come in "
      "slices and hold up nobody (default 256)",
      [options](int64_t value) { options->engine.pass_rows = value; });
  command->add_flag_callback(
      "--no-prefix-cache", [options] { options->engine.prefix_cache = false; },
      "Compute every prompt anew, also where its beginning was computed for an earlier request");
  add_session_flags(*command, options->flags);
  command->footer(
      "Endpoints: POST /v1/chat/completions, /v1/completions, /tokenize, /detokenize; GET\n"
      "/v1/models, /health (alive), /ready (loaded), /metrics (Prometheus), / (dashboard); with\n"
      "--jobs-folder /v1/files and /v1/batches. Where a request does not say how to sample, the\n"
      "model's suggestion holds, else the most likely "
      "token.\nSIGINT or SIGTERM lets running requests end (--drain); a second one ends at once.");
  command->callback([options, &action] { action = [options] { return serve_command(*options); }; });
}

}  // namespace klotski
