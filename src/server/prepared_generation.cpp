#include <fmt/format.h>

#include "server/generation.h"

namespace klotski {

Generation prepare_generation(const ServedModel& served, std::string_view body, Endpoint endpoint,
                              uint64_t seed) {
  Generation generation{
      .call = parse_generation(body, endpoint, served.sampling),
      .path = endpoint == Endpoint::chat ? "/v1/chat/completions" : "/v1/completions",
      .prepared = {},
      .echoes = {},
      .choices = {},
      .stream = {},
      .usage = {},
      .writer = {}};
  const GenerationCall& call = generation.call;
  if (call.model && *call.model != served.name) {
    throw ApiError(Status::not_found,
                   fmt::format("model: there is no {}; this server has {}", in_quotes(*call.model),
                               in_quotes(served.name)),
                   "model", "model_not_found");
  }
  generation.prepared = prepare_choices(call, served, seed);
  const bool reads_calls = !call.tools.is_null() && served.writes_tool_calls;
  for (size_t i = 0; i < generation.prepared.size(); ++i) {
    PreparedChoice& choice = generation.prepared[i];
    generation.echoes.push_back(std::move(choice.echo));
    generation.choices.emplace_back(reads_calls);
    if (i % static_cast<size_t>(call.choices) != 0) continue;  // a prompt counts once
    generation.usage.prompt_tokens += std::ssize(choice.request.prompt);
  }
  return generation;
}

std::vector<ResponseChoice> echoed_choices(const Generation& generation) {
  std::vector<ResponseChoice> choices;
  for (const std::string& echo : generation.echoes) {
    choices.push_back({.index = choices.size(), .text = echo});
  }
  return choices;
}

}  // namespace klotski
