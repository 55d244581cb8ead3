#include "batch/row.h"

#include <cmath>
#include <optional>
#include <utility>

#include "engine/prompt.h"

namespace klotski {

namespace {

constexpr size_t kMaxStopStrings = 16;
constexpr size_t kMaxCustomIdBytes = 512;

// Reads fields of an object; null counts as absent, as it does for the interface we follow.
class Fields {
 public:
  explicit Fields(const OrderedJson& object) : object_(object) {}

  const OrderedJson* find(const std::string& key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  std::optional<int64_t> integer(const std::string& key, int64_t least, int64_t most) const {
    const OrderedJson* value = find(key);
    if (!value) return std::nullopt;
    const bool fits = value->is_number_integer() &&
                      (!value->is_number_unsigned() || value->get<uint64_t>() <= INT64_MAX) &&
                      value->get<int64_t>() >= least && value->get<int64_t>() <= most;
    if (!fits) refuse(key, fmt::format("an integer from {} to {}", least, most));
    return value->get<int64_t>();
  }
  void number(const std::string& key, double least, double most, double* result) const {
    const OrderedJson* value = find(key);
    if (!value) return;
    const bool fits =
        value->is_number() && value->get<double>() >= least && value->get<double>() <= most;
    if (!fits) refuse(key, fmt::format("a number from {} to {}", least, most));
    *result = value->get<double>();
  }
  [[noreturn]] static void refuse(const std::string& key, std::string_view expected) {
    throw BadRow(fmt::format("{}: expected {}", key, expected), key);
  }

 private:
  const OrderedJson& object_;
};

bool is_empty(const OrderedJson& value) {
  return value == false || value == 0 || value == "" || value == "none" ||
         (value.is_structured() && value.empty());
}

// Refuses fields that would change the answer and are not supported: they must not be passed over.
void refuse_unsupported(const Fields& body) {
  for (const char* key :
       {"tools", "tool_choice", "functions", "function_call", "logprobs", "top_logprobs", "stream",
        "echo", "suffix", "logit_bias", "audio", "prediction", "web_search_options"}) {
    const OrderedJson* value = body.find(key);
    if (value && !is_empty(*value)) throw BadRow(fmt::format("{}: is not supported", key), key);
  }
  for (const char* key : {"n", "best_of"}) {
    if (body.find(key) && body.integer(key, 0, INT64_MAX) != 1) {
      throw BadRow(fmt::format("{}: only 1 is supported", key), key);
    }
  }
  if (const OrderedJson* format = body.find("response_format")) {
    if (!format->is_object() || format->value("type", OrderedJson()) != "text") {
      throw BadRow("response_format: only the type text is supported", "response_format");
    }
  }
  if (const OrderedJson* modalities = body.find("modalities")) {
    if (*modalities != OrderedJson::array({"text"})) {
      throw BadRow("modalities: only text is supported", "modalities");
    }
  }
}

SamplingOptions read_sampling(const Fields& body, SamplingOptions sampling) {
  body.number("temperature", 0.0, 100.0, &sampling.temperature);
  body.number("top_p", 0.0, 1.0, &sampling.top_p);
  body.number("min_p", 0.0, 1.0, &sampling.min_p);
  body.number("repetition_penalty", 0.01, 100.0, &sampling.repetition_penalty);
  body.number("presence_penalty", -100.0, 100.0, &sampling.presence_penalty);
  body.number("frequency_penalty", -100.0, 100.0, &sampling.frequency_penalty);
  if (const auto top_k = body.integer("top_k", 0, 1 << 24)) sampling.top_k = *top_k;
  if (const auto seed = body.integer("seed", INT64_MIN, INT64_MAX)) {
    sampling.seed = static_cast<uint64_t>(*seed);
  }
  return sampling;
}

std::vector<std::string> read_stop(const Fields& body) {
  const OrderedJson* stop = body.find("stop");
  std::vector<std::string> strings;
  if (!stop) return strings;
  const OrderedJson list = stop->is_array() ? *stop : OrderedJson::array({*stop});
  for (const OrderedJson& one : list) {
    if (!one.is_string() || one == "" || strings.size() == kMaxStopStrings) {
      Fields::refuse("stop",
                     fmt::format("a text or up to {} texts, none of them empty", kMaxStopStrings));
    }
    strings.push_back(one.get<std::string>());
  }
  return strings;
}

// The text of a message; parts of text are put together, as templates expect one text.
std::string content_of(const OrderedJson& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  const OrderedJson none;
  for (const OrderedJson& part : content.is_array() ? content : OrderedJson::array({none})) {
    const bool is_text = part.is_object() && part.value("type", none) == "text" &&
                         part.value("text", none).is_string();
    if (!is_text) Fields::refuse("messages", "a content of text in every message");
    text += part.value("text", none).get<std::string>();
  }
  return text;
}

// Most bytes that a token stands for: a text that cannot fit is refused before it is tokenised.
constexpr uint64_t kMostTokenBytes = 256;

void refuse_hopeless(uint64_t bytes, const RowDefaults& defaults, const char* field) {
  const auto positions = static_cast<uint64_t>(defaults.model.max_positions);
  if (bytes / kMostTokenBytes <= positions) return;
  throw BadRow(fmt::format("{}: {} of text are more than the model's {} positions can hold", field,
                           format_bytes(bytes), positions),
               field);
}

std::vector<TokenId> chat_prompt(const Fields& body, const RowDefaults& defaults) {
  if (!defaults.chat_template) {
    throw BadRow("the model has no chat template; use the url /v1/completions", "messages");
  }
  const OrderedJson* given = body.find("messages");
  if (!given || !given->is_array() || given->empty()) {
    Fields::refuse("messages", "an array of at least one message");
  }
  OrderedJson messages = OrderedJson::array();
  uint64_t bytes = 0;
  for (const OrderedJson& message : *given) {
    if (!message.is_object() || !message.value("role", OrderedJson()).is_string()) {
      Fields::refuse("messages", "objects with a role and a content");
    }
    messages.push_back(message);
    messages.back()["content"] = content_of(message.value("content", OrderedJson()));
    bytes += messages.back()["content"].get_ref<const std::string&>().size();
  }
  refuse_hopeless(bytes, defaults, "messages");
  return encode_chat(defaults.tokenizer, *defaults.chat_template,
                     chat_context(defaults.tokenizer_config, std::move(messages)));
}

std::vector<TokenId> text_prompt(const Fields& body, const RowDefaults& defaults) {
  const OrderedJson* prompt = body.find("prompt");
  if (prompt && prompt->is_array() && prompt->size() == 1 && !prompt->front().is_number()) {
    prompt = &prompt->front();
  }
  if (prompt && prompt->is_string()) {
    refuse_hopeless(prompt->get_ref<const std::string&>().size(), defaults, "prompt");
    return encode_text(defaults.tokenizer, defaults.tokenizer_config, defaults.model,
                       prompt->get_ref<const std::string&>(), false);
  }
  if (!prompt || !prompt->is_array()) Fields::refuse("prompt", "one text or one list of token ids");
  std::vector<TokenId> tokens;
  for (const OrderedJson& token : *prompt) {
    if (!token.is_number_unsigned() || token.get<uint64_t>() > INT32_MAX) {
      Fields::refuse("prompt", "one text or one list of token ids");
    }
    tokens.push_back(token.get<TokenId>());
  }
  return tokens;
}

bool is_chat(const OrderedJson& document) {
  const Fields row(document);
  const OrderedJson* method = row.find("method");
  if (!method || *method != "POST") Fields::refuse("method", "POST");
  const OrderedJson* url = row.find("url");
  if (!url || (*url != "/v1/chat/completions" && *url != "/v1/completions")) {
    Fields::refuse("url", "/v1/chat/completions or /v1/completions");
  }
  return *url == "/v1/chat/completions";
}

}  // namespace

RowEnvelope parse_envelope(std::string_view line) {
  RowEnvelope row;
  try {
    row.document = parse_ordered_json(
        line, "row", ErrorKind::usage,
        {.wanted = {"custom_id", "method", "url", "body"}, .bytes = &row.json_bytes});
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::does_not_fit) throw;
    throw BadRow(error.what());
  }
  if (!row.document.is_object()) throw BadRow("row: expected a JSON object");
  const OrderedJson* id = Fields(row.document).find("custom_id");
  if (!id || !id->is_string() || *id == "" ||
      id->get_ref<const std::string&>().size() > kMaxCustomIdBytes) {
    Fields::refuse("custom_id", fmt::format("a text of 1 to {} bytes", kMaxCustomIdBytes));
  }
  row.custom_id = id->get<std::string>();
  return row;
}

RowRequest build_request(const RowEnvelope& row, const RowDefaults& defaults) {
  RowRequest result;
  result.chat = is_chat(row.document);
  const OrderedJson* given = Fields(row.document).find("body");
  if (!given || !given->is_object()) Fields::refuse("body", "an object");
  const Fields body(*given);
  refuse_unsupported(body);
  result.stop_strings = read_stop(body);
  Request& request = result.request;
  request.sampling = read_sampling(body, defaults.sampling);
  request.max_tokens = defaults.max_tokens;
  for (const char* key : {"max_tokens", "max_completion_tokens"}) {
    request.max_tokens = body.integer(key, 1, 1 << 30).value_or(request.max_tokens);
  }
  request.stop_tokens = defaults.model.end_tokens;
  request.decoder_prompt = defaults.decoder_prompt;
  request.prompt = result.chat ? chat_prompt(body, defaults) : text_prompt(body, defaults);
  return result;
}

}  // namespace klotski
