#pragma once

// Shared by tests of sessions: models to open, and requests run to their end.

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/config.h"
#include "session/session.h"
#include "synth/synthetic_model.h"

namespace klotski::testing {

using Tokens = std::vector<std::vector<TokenId>>;

inline std::shared_ptr<const OpenedModel> tiny_model() {
  return open_model(std::string(KLOTSKI_MODELS) + "/tiny-mixtral");
}

// A source whose reads fail: whoever needs a weight is found out.
class NoWeights final : public UnitSource {
 public:
  void read(const WeightUnit&, const UnitLayout&, std::span<std::byte>, const Processor&) override {
    fail(ErrorKind::internal, "a weight was read");
  }
};

// The bundled model, and a synthetic one, whose weights cannot be read.
inline std::shared_ptr<const OpenedModel> tiny_model_without_weights() {
  const std::string folder = std::string(KLOTSKI_MODELS) + "/tiny-mixtral";
  return std::make_shared<const OpenedModel>(OpenedModel{.folder = folder,
                                                         .description = read_config(folder),
                                                         .checkpoint = Checkpoint::open(folder),
                                                         .source = std::make_shared<NoWeights>(),
                                                         .home = {}});
}
inline std::shared_ptr<const OpenedModel> synthetic_model_without_weights(
    const std::string& shape) {
  SynthOptions options;
  options.shape = shape;
  SyntheticModel made = synthetic_model(options);
  return std::make_shared<const OpenedModel>(OpenedModel{.folder = std::move(made.folder),
                                                         .description = std::move(made.description),
                                                         .checkpoint = std::move(made.checkpoint),
                                                         .source = std::make_shared<NoWeights>(),
                                                         .home = std::move(made.home)});
}

inline Workload workload_of(const Tokens& prompts, int64_t generated) {
  size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  return {.sequences = static_cast<int64_t>(prompts.size()),
          .tokens_per_sequence = static_cast<int64_t>(longest) + generated,
          .prompt_tokens = static_cast<int64_t>(longest),
          .generated_tokens = generated};
}

// Requests that a session's engine runs greedily, a step at a time.
class Running {
 public:
  Running(Session& session, const Tokens& prompts, int64_t generated) : session_(session) {
    for (const auto& prompt : prompts) {
      const SequenceId id = session.engine().submit(
          {.prompt = prompt, .sampling = {}, .max_tokens = generated, .stop_tokens = {}});
      place_[id] = tokens_.size();
      tokens_.emplace_back();
    }
  }

  bool ended() const { return session_.engine().idle(); }
  void step() {
    for (const Progress& progress : session_.engine().step()) {
      if (progress.finish == Finish::failed) fail(progress.error_kind, "{}", progress.error);
      tokens_[place_.at(progress.sequence)].push_back(progress.token);
    }
  }
  const Tokens& tokens() const { return tokens_; }

 private:
  Session& session_;
  std::map<SequenceId, size_t> place_;
  Tokens tokens_;
};

inline Tokens generate(Session& session, const Tokens& prompts, int64_t generated) {
  Running running(session, prompts, generated);
  while (!running.ended()) running.step();
  return running.tokens();
}

}  // namespace klotski::testing
