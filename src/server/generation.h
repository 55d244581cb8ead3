#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/choice_progress.h"
#include "server/generation_stream.h"
#include "server/openai_requests.h"
#include "server/openai_responses.h"
#include "server/served_model.h"

namespace klotski {

// A response to a request for text on its way.
struct Generation {
  GenerationCall call;
  std::string_view path;
  std::vector<PreparedChoice> prepared;  // until they are submitted
  std::vector<std::string> echoes;       // by choice
  std::vector<ChoiceProgress> choices;
  std::shared_ptr<GenerationStream> stream;
  TokenUsage usage;
  std::optional<ResponseWriter> writer;

  ResponseChoice next(ChoiceUpdate update) {
    usage.completion_tokens += update.tokens;
    usage.drafts += update.drafts;
    ChoiceProgress& choice = choices[update.choice];
    return choice.next(std::move(update));
  }
};

// Parses and tokenises the body of a request; throws ApiError for one that cannot be answered. The
// stream and the writer are left to the caller. `seed` is used where the body has none.
Generation prepare_generation(const ServedModel& served, std::string_view body, Endpoint endpoint,
                              uint64_t seed);

// The choices of a response before the first update: their echoes of the prompt.
std::vector<ResponseChoice> echoed_choices(const Generation& generation);

}  // namespace klotski
