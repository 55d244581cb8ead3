#include "server/generation_stream.h"

#include <utility>

namespace klotski {

namespace {

// Bytes that an update takes in memory besides its text, or nearly so.
uint64_t bytes_of(const ChoiceUpdate& update) {
  uint64_t bytes = sizeof(ChoiceUpdate) + update.text.size();
  for (const TokenDetail& detail : update.details) {
    bytes += sizeof(TokenDetail) + detail.logprobs.top.size() * sizeof(TokenLogprob);
  }
  return bytes;
}

}  // namespace

bool GenerationStream::push(ChoiceUpdate update) {
  if (abandoned_) return false;
  const std::lock_guard lock(mutex_);
  if (error_) return false;
  untaken_bytes_ += bytes_of(update);
  if (untaken_bytes_ > most_untaken_bytes_) {
    error_.emplace(Status::timeout, "the response was read too slowly", "", "slow_reader");
    return false;
  }
  if (update.finish) --unfinished_;
  updates_.push_back(std::move(update));
  return true;
}

void GenerationStream::fail(ApiError error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_.emplace(std::move(error));
}

std::vector<ChoiceUpdate> GenerationStream::take() {
  const std::lock_guard lock(mutex_);
  untaken_bytes_ = 0;
  return std::exchange(updates_, {});
}

bool GenerationStream::ended() const {
  const std::lock_guard lock(mutex_);
  return updates_.empty() && (error_ || unfinished_ == 0);
}

std::optional<ApiError> GenerationStream::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

}  // namespace klotski
