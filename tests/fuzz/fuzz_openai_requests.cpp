// The first byte chooses an endpoint, the rest is a body. An accepted one keeps to every bound.

#include <cstdint>
#include <cstdlib>

#include "server/job_objects.h"
#include "server/multipart.h"
#include "server/openai_requests.h"

namespace {

void check(const klotski::GenerationCall& call) {
  using namespace klotski;
  const bool chat = call.endpoint == Endpoint::chat;
  if (call.prompts.empty() != chat || call.messages.is_array() != chat) std::abort();
  if (call.choices < 1 || call.choices > kMaxChoices) std::abort();
  if (call.max_tokens && *call.max_tokens < 1) std::abort();
  if (call.logprobs && (*call.logprobs < 0 || *call.logprobs > kMaxLogprobs)) std::abort();
  if (call.stop_strings.size() > kMaxStopStrings) std::abort();
  for (const std::string& stop : call.stop_strings) {
    if (stop.empty() || stop.size() > kMaxStopBytes) std::abort();
  }
  if (!(call.sampling.temperature >= 0.0) || !(call.sampling.top_p <= 1.0)) std::abort();
  for (const auto& message : call.messages) {
    if (!message["content"].is_string()) std::abort();
  }
}

void check(const std::vector<klotski::FormPart>& parts, std::string_view body) {
  for (const klotski::FormPart& part : parts) {
    if (part.content.empty()) continue;
    if (part.content.data() < body.data()) std::abort();
    if (part.content.data() + part.content.size() > body.data() + body.size()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace klotski;
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0] % 6) {
      case 0:
        check(parse_generation(body, Endpoint::chat, {}));
        break;
      case 1:
        check(parse_generation(body, Endpoint::completions, {}));
        break;
      case 2:
        parse_tokenize(body);
        break;
      case 3:
        parse_detokenize(body);
        break;
      case 4:
        check(parse_form("multipart/form-data; boundary=xyz", body), body);
        break;
      default:
        new_batch(body);
    }
  } catch (const ApiError& error) {
    if (error.status() != Status::bad_request) std::abort();
  }
  return 0;
}
