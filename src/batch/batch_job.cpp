#include "batch/batch_job.h"

#include <ctime>
#include <utility>

namespace klotski {

BatchJob::BatchJob(Engine& engine, const RowDefaults& defaults, std::string model, InputFile& input,
                   ResultFile& output, BatchWindow window)
    : engine_(engine),
      defaults_(defaults),
      model_(std::move(model)),
      input_(input),
      output_(output),
      window_(window) {}

BatchCounts BatchJob::run(const BatchHooks& hooks) {
  while (!hooks.stop_asked()) {
    fill_window();
    if (running_.empty()) break;
    for (const Progress& progress : engine_.step()) take(progress);
    hooks.after_step(counts_);
  }
  for (const auto& row : running_) engine_.cancel(row.first);
  running_.clear();
  output_.flush();
  return counts_;
}

void BatchJob::fill_window() {
  InputLine line;
  while (!input_ended_ && static_cast<int64_t>(running_.size()) < window_.rows &&
         engine_.pending_tokens() < window_.pending_tokens) {
    input_ended_ = !input_.next(line);
    if (!input_ended_) start(line);
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
    RowRequest row = build_request(envelope, defaults_);
    // An answer in a chat begins a text of its own; a continuation does not.
    TextStream text(defaults_.tokenizer, std::move(row.stop_strings),
                    row.chat ? std::span<const TokenId>() : row.request.prompt);
    Completion completion{.chat = row.chat, .model = model_, .text = {}};
    completion.lossy = defaults_.lossy;
    completion.prompt_tokens = static_cast<int64_t>(row.request.prompt.size());
    const SequenceId id = engine_.submit(std::move(row.request));
    running_.emplace(id, Running{head, std::move(completion), std::move(text)});
  } catch (const BadRow& bad) {
    write_failed(refusal_line(head, bad.what(), bad.param()));
  } catch (const Error& error) {
    // The engine or the template does not take it: too long, no room, roles in a wrong order.
    if (error.kind() == ErrorKind::internal) throw;
    write_failed(refusal_line(head, error.what(), ""));
  }
}

void BatchJob::take(const Progress& progress) {
  const auto found = running_.find(progress.sequence);
  if (found == running_.end()) return;
  Running& row = found->second;
  Completion& completion = row.completion;
  if (progress.finish == Finish::failed) {
    write_failed(failure_line(row.head, progress.error));
    running_.erase(found);
    return;
  }
  if (completion.completion_tokens++ == 0) counts_.prompt_tokens += completion.prompt_tokens;
  ++counts_.generated_tokens;
  // An end token is not text.
  if (progress.finish != Finish::stop_token) completion.text += row.text.push(progress.token);
  if (progress.finish == Finish::not_yet && !row.text.stopped()) return;

  if (progress.finish == Finish::not_yet) engine_.cancel(progress.sequence);
  completion.text += row.text.finish();
  completion.by_length = progress.finish == Finish::length && !row.text.stopped();
  completion.created = static_cast<int64_t>(std::time(nullptr));
  output_.append(completion_line(row.head, completion));
  ++counts_.rows_ok;
  running_.erase(found);
}

void BatchJob::write_failed(const std::string& line) {
  output_.append(line);
  ++counts_.rows_failed;
}

}  // namespace klotski
