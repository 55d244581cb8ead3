#include "batch/batch_job.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace klotski {

BatchJob::BatchJob(Engine& engine, const RowDefaults& defaults, std::string model, InputFile& input,
                   JobResults& results, BatchWindow window)
    : engine_(engine),
      defaults_(defaults),
      model_(std::move(model)),
      input_(input),
      results_(results),
      window_(window) {}

BatchCounts BatchJob::run(const BatchHooks& hooks) {
  hooks_ = &hooks;
  while (!hooks.stop_asked()) {
    fill_window();
    if (running_.empty() && input_ended_ && suspects_.empty()) break;
    std::vector<Row> failed;
    for (const Progress& progress : engine_.step()) take(progress, failed);
    if (!failed.empty()) suspect(std::move(failed));
    results_.commit_if_due();
    hooks.after_step(counts_);
  }
  for (const auto& row : running_) engine_.cancel(row.first);
  running_.clear();
  results_.commit();
  return counts_;
}

void BatchJob::fill_window() {
  if (!suspects_.empty()) {
    if (!running_.empty()) return;
    const std::vector<Row> rows = std::move(suspects_.front());
    suspects_.pop_front();
    for (const Row& row : rows) submit(row);
    return;
  }
  InputLine line;
  // Rows that are refused never run: without a bound all of them would be read at once.
  for (int64_t read = 0; read < std::max(window_.rows, kMostReadAtOnce) && !input_ended_ &&
                         static_cast<int64_t>(running_.size()) < window_.rows &&
                         engine_.pending_tokens() < window_.pending_tokens;
       ++read) {
    input_ended_ = !input_.next(line);
    if (!input_ended_ && !results_.done(line.row)) start(line);
  }
}

void BatchJob::start(const InputLine& line) {
  ResultHead head{.line = line.number, .custom_id = std::nullopt};
  try {
    if (line.too_long) {
      throw BadRow(fmt::format("row: expected at most {}", format_bytes(kMaxLineBytes)));
    }
    const RowEnvelope envelope = parse_envelope(line.text);
    head.custom_id = envelope.custom_id;
    submit({.row = line.row, .head = head, .request = build_request(envelope, defaults_)});
  } catch (const BadRow& bad) {
    write_failed(head, line.row, refusal_line(head, bad.what(), bad.param()), bad.what());
  } catch (const Error& error) {
    // The engine or the template does not take it: too long, no room, roles in a wrong order.
    if (error.kind() == ErrorKind::internal) throw;
    write_failed(head, line.row, refusal_line(head, error.what(), ""), error.what());
  }
}

void BatchJob::submit(Row row) {
  const RowRequest& asked = row.request;
  // An answer in a chat and the output of a decoder with an encoder begin a text of their own; a
  // continuation does not.
  const bool begins = asked.chat || defaults_.model.encoder;
  TextStream text(defaults_.tokenizer, asked.stop_strings,
                  begins ? std::span<const TokenId>() : asked.request.prompt);
  Completion completion{.chat = asked.chat, .model = model_, .text = {}};
  completion.lossy = defaults_.lossy;
  completion.prompt_tokens = static_cast<int64_t>(asked.request.prompt.size());
  const SequenceId id = engine_.submit(asked.request);
  running_.emplace(id, Running{std::move(row), std::move(completion), std::move(text)});
}

// Rows whose pass failed run again, half of them at a time; one that fails alone, and not for the
// first time, has failed.
void BatchJob::suspect(std::vector<Row> failed) {
  constexpr int kMostFailures = 3;
  if (failed.size() == 1 && failed.front().failures >= kMostFailures) {
    const Row& row = failed.front();
    write_failed(row.head, row.row, failure_line(row.head, row.error), row.error);
    return;
  }
  const auto half = failed.begin() + static_cast<std::ptrdiff_t>((failed.size() + 1) / 2);
  std::vector<Row> rest(std::make_move_iterator(half), std::make_move_iterator(failed.end()));
  failed.erase(half, failed.end());
  if (!rest.empty()) suspects_.push_front(std::move(rest));
  suspects_.push_front(std::move(failed));
}

void BatchJob::take(const Progress& progress, std::vector<Row>& failed) {
  const auto found = running_.find(progress.sequence);
  if (found == running_.end()) return;
  Running& running = found->second;
  Completion& completion = running.completion;
  if (progress.finish == Finish::failed) {
    // The row begins again.
    counts_.generated_tokens -= completion.completion_tokens;
    if (completion.completion_tokens > 0) {
      --counts_.rows_begun;
      counts_.prompt_tokens -= completion.prompt_tokens;
    }
    ++running.row.failures;
    running.row.error = progress.error;
    failed.push_back(std::move(running.row));
    running_.erase(found);
    return;
  }
  if (completion.completion_tokens++ == 0) {
    ++counts_.rows_begun;
    counts_.prompt_tokens += completion.prompt_tokens;
  }
  ++counts_.generated_tokens;
  // An end token is not text.
  if (progress.finish != Finish::stop_token) completion.text += running.text.push(progress.token);
  if (progress.finish == Finish::not_yet && !running.text.stopped()) return;

  if (progress.finish == Finish::not_yet) engine_.cancel(progress.sequence);
  completion.text += running.text.finish();
  completion.by_length = progress.finish == Finish::length && !running.text.stopped();
  completion.created = results_.created();  // a resumed job gives the bytes of one that was not
  const Row& row = running.row;
  results_.add({.row = row.row, .failed = false, .text = completion_line(row.head, completion)});
  counts_.generated_by_done += completion.completion_tokens;
  ++counts_.rows_ok;
  running_.erase(found);
}

void BatchJob::write_failed(const ResultHead& head, int64_t row, std::string line,
                            const std::string& reason) {
  results_.add({.row = row, .failed = true, .text = std::move(line)});
  ++counts_.rows_failed;
  if (hooks_->row_failed) hooks_->row_failed(head.line, reason);
}

}  // namespace klotski
