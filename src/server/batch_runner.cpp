#include "server/batch_runner.h"

#include <boost/asio/post.hpp>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <future>

#include "base/noise.h"
#include "batch/fingerprint.h"
#include "batch/row.h"

namespace klotski {

namespace {

constexpr std::chrono::milliseconds kNap(50);  // between looks at what nobody rings for
constexpr uint64_t kMostUntakenBytes = uint64_t{64} << 20;

// Refuses (ApiError) a row that is for another endpoint than its batch, or no request.
std::string body_of(const RowEnvelope& envelope, Endpoint endpoint) {
  const std::string_view url =
      endpoint == Endpoint::chat ? "/v1/chat/completions" : "/v1/completions";
  const OrderedJson& row = envelope.document;
  if (row.value("method", OrderedJson()) != "POST") {
    throw ApiError(Status::bad_request, "method: expected POST", "method");
  }
  if (row.value("url", OrderedJson()) != url) {
    throw ApiError(Status::bad_request, fmt::format("url: expected the batch's, {}", url), "url");
  }
  const OrderedJson body = row.value("body", OrderedJson());
  if (!body.is_object()) throw ApiError(Status::bad_request, "body: expected an object", "body");
  if (body.value("stream", OrderedJson(false)) == true) {
    throw ApiError(Status::bad_request, "stream: is not supported in a batch", "stream");
  }
  return body.dump();
}

}  // namespace

BatchRunner::BatchRunner(JobStore& store, const ServedModel& served, EngineThread& engine,
                         asio::io_context& preparation, size_t rows_at_once)
    : store_(store),
      served_(served),
      engine_(engine),
      preparation_(preparation),
      rows_at_once_(rows_at_once),
      fingerprint_(model_fingerprint(*served.model)) {}

void BatchRunner::start() {
  thread_ = std::thread([this] { work(); });
}

void BatchRunner::stop() {
  stopping_ = true;
  store_.stop();
  if (thread_.joinable()) thread_.join();
}

void BatchRunner::work() {
  while (const std::optional<std::string> id = store_.next_batch()) {
    try {
      run(*id);
    } catch (const std::exception& error) {
      if (!stopping_) fail(*id, one_line(error.what()));
    }
  }
}

// A batch whose end cannot be written, on a full disk for instance, is tried again.
void BatchRunner::fail(const std::string& id, const std::string& reason) {
  try {
    store_.fail_batch(id, reason);
  } catch (const Error&) {
    std::this_thread::sleep_for(kNap);
  }
}

bool BatchRunner::engine_takes_rows() const {
  return engine_.state() == EngineState::ready && engine_.has_room(1);
}

void BatchRunner::wait_for_news() {
  std::unique_lock lock(bell_->mutex);
  bell_->rung.wait_for(lock, kNap, [this] { return bell_->news; });
  bell_->news = false;
}

void BatchRunner::run(const std::string& id) {
  const BatchFiles files = store_.files_of(id);
  // A server that was killed between the end of the output and the end of the batch.
  if (std::filesystem::exists(files.output) &&
      !std::filesystem::exists(journal_path(files.output))) {
    store_.complete(id);
    return;
  }
  InputFile input(files.input);
  // A full disk stops the batch until there is space, and nothing else.
  JobResults results({.output = files.output, .errors = files.errors}, input.descriptor(),
                     [this](const std::string&) {
                       if (!stopping_) std::this_thread::sleep_for(std::chrono::seconds(1));
                       return !stopping_;
                     });
  const InputSize size = measure_rows(input);
  results.begin({{"input", fmt::format("{} rows of hash {}", size.rows, size.hash)},
                 {"model", fmt::format("hash {}", fingerprint_)},
                 {"name of the model", served_.name},
                 {"--max-tokens", served_.max_tokens},
                 {"endpoint", files.endpoint},
                 {"exactness", served_.lossy}},
                size.rows, static_cast<int64_t>(std::time(nullptr)));
  store_.set_running(id, size.rows);
  Batch batch{
      .id = id,
      .endpoint = files.endpoint == "/v1/chat/completions" ? Endpoint::chat : Endpoint::completions,
      .input = input,
      .results = results};
  if (!run_rows(batch)) return;
  store_.set_finalizing(id);
  results.finish();
  store_.complete(id);
}

// False where the server ends: then the batch goes on with the next one.
bool BatchRunner::run_rows(Batch& batch) {
  JobResults& results = batch.results;
  const auto give_up = [&] {
    for (const auto& row : batch.rows) row->generation.stream->abandon();
    batch.rows.clear();
    results.commit();
  };
  while (results.rows_done() < results.rows()) {
    if (stopping_ || engine_.state() == EngineState::stopped) {
      give_up();
      if (!stopping_) std::this_thread::sleep_for(kNap);
      return false;
    }
    if (store_.cancel_asked(batch.id)) {
      give_up();
      break;
    }
    fill(batch);
    if (results.rows_done() < results.rows()) wait_for_news();
    take_news(batch);
    results.commit_if_due();
    store_.count(batch.id, results.rows_done() - results.rows_failed(), results.rows_failed());
  }
  store_.count(batch.id, results.rows_done() - results.rows_failed(), results.rows_failed());
  return true;
}

void BatchRunner::fill(Batch& batch) {
  InputLine line;
  // Rows that are refused never run: without a bound all of them would be read at once.
  for (int64_t read = 0; read < kMostReadAtOnce && !batch.input_ended &&
                         batch.rows.size() < rows_at_once_ && engine_takes_rows() && !stopping_;
       ++read) {
    batch.input_ended = !batch.input.next(line);
    if (!batch.input_ended && !batch.results.done(line.row)) start_row(batch, line);
  }
}

// Waits for the thread whose stack is made for templates that nest deeply.
std::optional<ApiError> BatchRunner::prepare(const std::function<void()>& action) {
  const auto promise = std::make_shared<std::promise<std::optional<ApiError>>>();
  auto result = promise->get_future();
  asio::post(preparation_, [promise, &action] { promise->set_value(refusal_of(action)); });
  while (result.wait_for(kNap) != std::future_status::ready) {
    if (stopping_) return ApiError(Status::unavailable, "the server ends");
  }
  return result.get();
}

std::unique_ptr<BatchRunner::Row> BatchRunner::prepared_row(const Batch& batch,
                                                            const InputLine& line,
                                                            ResultHead& head) {
  if (line.too_long) throw ApiError(Status::bad_request, "the row is too long");
  const RowEnvelope envelope = parse_envelope(line.text);
  head.custom_id = envelope.custom_id;
  // A row that says no seed has one of its own, the same one whenever it runs.
  Generation generation = prepare_generation(served_, body_of(envelope, batch.endpoint),
                                             batch.endpoint, noise_key(0, envelope.custom_id));
  auto row = std::make_unique<Row>(Row{line.row, head, std::move(generation), {}});
  row->whole = echoed_choices(row->generation);
  row->generation.writer.emplace(
      ResponseHead{.endpoint = batch.endpoint,
                   .id = fmt::format(
                       "{}-{}", batch.endpoint == Endpoint::chat ? "chatcmpl" : "cmpl", head.line),
                   .model = served_.name,
                   .created = batch.results.created(),
                   .lossy = served_.lossy},
      served_.tokenizer, row->generation.call.logprobs.has_value());
  return row;
}

void BatchRunner::start_row(Batch& batch, const InputLine& line) {
  ResultHead head{.line = line.number, .custom_id = std::nullopt};
  std::unique_ptr<Row> row;
  std::optional<ApiError> error = prepare([&] { row = prepared_row(batch, line, head); });
  if (stopping_) return;
  while (!error) {
    Generation& generation = row->generation;
    generation.stream =
        std::make_shared<GenerationStream>(generation.choices.size(), kMostUntakenBytes);
    generation.stream->on_ready = [bell = bell_] {
      const std::lock_guard guard(bell->mutex);
      bell->news = true;
      bell->rung.notify_all();
    };
    GenerationJob job{.choices = generation.prepared, .stream = generation.stream};
    error = refusal_of([&] { engine_.submit(std::move(job)); });
    if (!error) {
      generation.prepared.clear();
      batch.rows.push_back(std::move(row));
      return;
    }
    const bool later =
        error->status() == Status::too_many_requests || error->status() == Status::unavailable;
    // A row of more choices than the queue takes never gets in.
    if (!later || (batch.rows.empty() && !engine_.busy())) break;
    if (stopping_ || engine_.state() == EngineState::stopped) return;
    error.reset();
    std::this_thread::sleep_for(kNap);
    take_news(batch);
  }
  batch.results.add(
      {.row = line.row,
       .failed = true,
       .text = response_line(head, static_cast<int>(error->status()), error_body(*error))});
}

void BatchRunner::take_news(Batch& batch) {
  for (const auto& row : batch.rows) {
    for (ChoiceUpdate& update : row->generation.stream->take()) {
      ResponseChoice more = row->generation.next(std::move(update));
      ResponseChoice& choice = row->whole[more.index];
      append(choice, std::move(more));
    }
    if (row->generation.stream->ended()) finish_row(batch, *row);
  }
  std::erase_if(batch.rows, [&](const auto& row) { return batch.results.done(row->row); });
}

void BatchRunner::finish_row(Batch& batch, Row& row) {
  const std::optional<ApiError> error = row.generation.stream->error();
  // An engine that ends is no fault of the row: it runs again with the next server.
  if (error && (stopping_ || engine_.state() == EngineState::stopped)) return;
  const std::string text =
      error ? response_line(row.head, static_cast<int>(error->status()), error_body(*error))
            : response_line(
                  row.head, 200,
                  OrderedJson::parse(row.generation.writer->body(row.whole, row.generation.usage)));
  batch.results.add({.row = row.row, .failed = error.has_value(), .text = text});
}

}  // namespace klotski
