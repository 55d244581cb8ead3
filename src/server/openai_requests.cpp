#include "server/openai_requests.h"

#include <charconv>

#include "server/request_fields.h"

namespace klotski {

namespace {

constexpr int64_t kMostTokens = 1 << 30;

OrderedJson parse_body(std::string_view body) {
  try {
    OrderedJson document = parse_ordered_json(body, "body", ErrorKind::usage);
    if (document.is_object()) return document;
  } catch (const Error& error) {
    throw ApiError(Status::bad_request, error.what(), "", "invalid_json");
  }
  throw ApiError(Status::bad_request, "body: expected a JSON object", "", "invalid_json");
}

bool is_nothing(const OrderedJson& value) {
  return value == false || value == 0 || value == "" || value == "none" ||
         (value.is_structured() && value.empty());
}

// Refuses fields that would change the answer and are not supported: a client must not believe that
// they were followed. Fields that nobody here knows are passed over.
void refuse_unsupported_fields(const RequestFields& body) {
  for (const char* key :
       {"functions", "function_call", "suffix", "audio", "prediction", "web_search_options",
        "min_tokens", "use_beam_search", "grammar", "guided_json", "guided_regex", "guided_choice",
        "guided_grammar", "structured_outputs", "prompt_logprobs", "reasoning_effort"}) {
    const OrderedJson* value = body.find(key);
    if (value && !is_nothing(*value)) RequestFields::refuse_unsupported(key);
  }
  if (body.integer("best_of", 1, kMaxChoices).value_or(1) != 1) {
    RequestFields::refuse_unsupported("best_of", "only 1 is supported");
  }
  if (const OrderedJson* format = body.find("response_format")) {
    if (!format->is_object() || format->value("type", OrderedJson()) != "text") {
      RequestFields::refuse_unsupported("response_format", "only the type text is supported");
    }
  }
  if (const OrderedJson* modalities = body.find("modalities")) {
    if (*modalities != OrderedJson::array({"text"})) {
      RequestFields::refuse_unsupported("modalities", "only text is supported");
    }
  }
}

std::vector<std::pair<TokenId, double>> read_logit_bias(const RequestFields& body) {
  const OrderedJson* given = body.find("logit_bias");
  std::vector<std::pair<TokenId, double>> biases;
  if (!given) return biases;
  const auto refuse = [] {
    RequestFields::refuse("logit_bias", "an object of token ids with numbers from -100 to 100");
  };
  if (!given->is_object()) refuse();
  for (const auto& item : given->items()) {
    const std::string& key = item.key();
    TokenId token = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    const bool is_id = error == std::errc() && end == key.data() + key.size() && token >= 0;
    const bool is_bias = item.value().is_number() && item.value().get<double>() >= -100.0 &&
                         item.value().get<double>() <= 100.0;
    if (!is_id || !is_bias) refuse();
    biases.emplace_back(token, item.value().get<double>());
  }
  return biases;
}

void read_sampling(const RequestFields& body, GenerationCall& call) {
  SamplingOptions& sampling = call.sampling;
  body.number("temperature", 0.0, 100.0, &sampling.temperature);
  body.number("top_p", 0.0, 1.0, &sampling.top_p);
  body.number("min_p", 0.0, 1.0, &sampling.min_p);
  body.number("repetition_penalty", 0.01, 100.0, &sampling.repetition_penalty);
  body.number("presence_penalty", -100.0, 100.0, &sampling.presence_penalty);
  body.number("frequency_penalty", -100.0, 100.0, &sampling.frequency_penalty);
  if (const auto top_k = body.integer("top_k", -1, 1 << 24)) {
    sampling.top_k = std::max<int64_t>(*top_k, 0);  // -1 and 0 both stand for all tokens
  }
  if (const auto seed = body.integer("seed", INT64_MIN, INT64_MAX)) {
    sampling.seed = static_cast<uint64_t>(*seed);
    call.has_seed = true;
  }
  sampling.logit_bias = read_logit_bias(body);
}

std::vector<std::string> read_stop(const RequestFields& body) {
  const OrderedJson* stop = body.find("stop");
  std::vector<std::string> strings;
  if (!stop) return strings;
  const OrderedJson list = stop->is_array() ? *stop : OrderedJson::array({*stop});
  for (const OrderedJson& one : list) {
    if (!one.is_string() || one == "" || strings.size() == kMaxStopStrings ||
        one.get_ref<const std::string&>().size() > kMaxStopBytes) {
      RequestFields::refuse("stop", fmt::format("a text or up to {} texts of 1 to {} bytes",
                                                kMaxStopStrings, kMaxStopBytes));
    }
    strings.push_back(one.get<std::string>());
  }
  return strings;
}

std::vector<TokenId> token_ids_of(const OrderedJson& list, const char* key) {
  std::vector<TokenId> tokens;
  tokens.reserve(list.size());
  for (const OrderedJson& token : list) {
    if (!token.is_number_unsigned() || token.get<uint64_t>() > INT32_MAX) {
      RequestFields::refuse(key, "token ids in each list of numbers");
    }
    tokens.push_back(token.get<TokenId>());
  }
  return tokens;
}

// One text, a list of texts, a list of token ids, or a list of such lists.
std::vector<PromptInput> read_prompts(const RequestFields& body) {
  const OrderedJson* given = body.find("prompt");
  if (!given) RequestFields::refuse("prompt", "a text, a list of token ids, or a list of these");
  if (given->is_string()) return {given->get<std::string>()};
  if (!given->is_array() || given->empty()) {
    RequestFields::refuse("prompt", "a text, a list of token ids, or a list of these");
  }
  if (given->front().is_number()) return {token_ids_of(*given, "prompt")};
  std::vector<PromptInput> prompts;
  for (const OrderedJson& one : *given) {
    if (std::ssize(prompts) == kMaxChoices) {
      RequestFields::refuse("prompt", fmt::format("at most {} prompts", kMaxChoices));
    }
    if (one.is_string()) {
      prompts.emplace_back(one.get<std::string>());
    } else if (one.is_array()) {
      prompts.emplace_back(token_ids_of(one, "prompt"));
    } else {
      RequestFields::refuse("prompt", "a text, a list of token ids, or a list of these");
    }
  }
  return prompts;
}

// The text of a message; parts of text are put together, as templates expect one text.
std::string content_of(const OrderedJson& message) {
  const OrderedJson none;
  const OrderedJson content = message.value("content", none);
  if (content.is_string()) return content.get<std::string>();
  if (content.is_null() && message.contains("tool_calls")) return "";
  std::string text;
  for (const OrderedJson& part : content.is_array() ? content : OrderedJson::array({none})) {
    const bool is_text = part.is_object() && part.value("type", none) == "text" &&
                         part.value("text", none).is_string();
    if (!is_text) RequestFields::refuse("messages", "a content of text in every message");
    text += part.value("text", none).get<std::string>();
  }
  return text;
}

// The calls of an assistant's message; arguments, which come as a text of JSON, become the object
// that templates expect.
OrderedJson tool_calls_of(const OrderedJson& given) {
  if (!given.is_array()) RequestFields::refuse("messages", "a list as tool_calls");
  OrderedJson calls = given;
  for (OrderedJson& call : calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object() ||
        !call["function"].value("name", OrderedJson()).is_string()) {
      RequestFields::refuse("messages", "a function with a name in each of tool_calls");
    }
    OrderedJson& function = call["function"];
    if (!function.contains("arguments")) function["arguments"] = OrderedJson::object();
    OrderedJson& arguments = function["arguments"];
    if (!arguments.is_string()) continue;
    try {
      arguments = parse_ordered_json(arguments.get<std::string>(), "arguments", ErrorKind::usage);
    } catch (const Error&) {  // whatever the model once wrote is shown to it as it was
    }
  }
  return calls;
}

OrderedJson read_messages(const RequestFields& body) {
  const OrderedJson* given = body.find("messages");
  if (!given || !given->is_array() || given->empty()) {
    RequestFields::refuse("messages", "an array of at least one message");
  }
  OrderedJson messages = OrderedJson::array();
  for (const OrderedJson& message : *given) {
    if (!message.is_object() || !message.value("role", OrderedJson()).is_string()) {
      RequestFields::refuse("messages", "objects with a role and a content");
    }
    OrderedJson& kept = messages.emplace_back(message);
    kept["content"] = content_of(message);
    if (kept.contains("tool_calls")) {
      kept["tool_calls"] =
          kept["tool_calls"].is_null() ? OrderedJson::array() : tool_calls_of(kept["tool_calls"]);
    }
  }
  return messages;
}

OrderedJson read_tools(const RequestFields& body) {
  const OrderedJson* choice = body.find("tool_choice");
  if (choice && *choice != "auto" && *choice != "none") {
    RequestFields::refuse_unsupported("tool_choice", "only auto and none are supported");
  }
  const OrderedJson* tools = body.find("tools");
  if (!tools || (choice && *choice == "none")) return nullptr;
  const auto is_function = [](const OrderedJson& tool) {
    return tool.is_object() && tool.value("type", OrderedJson()) == "function" &&
           tool.contains("function") && tool["function"].is_object() &&
           tool["function"].value("name", OrderedJson()).is_string();
  };
  if (!tools->is_array() || !std::all_of(tools->begin(), tools->end(), is_function)) {
    RequestFields::refuse("tools", "a list of functions, each with a name");
  }
  return tools->empty() ? OrderedJson(nullptr) : *tools;
}

void read_chat(const RequestFields& body, GenerationCall& call) {
  call.messages = read_messages(body);
  call.tools = read_tools(body);
  const auto alternatives = body.integer("top_logprobs", 0, kMaxLogprobs);
  if (body.boolean("logprobs")) {
    call.logprobs = alternatives.value_or(0);
  } else if (alternatives.value_or(0) > 0) {
    RequestFields::refuse("top_logprobs", "logprobs true with it");
  }
}

void read_completion(const RequestFields& body, GenerationCall& call) {
  call.prompts = read_prompts(body);
  call.echo = body.boolean("echo");
  call.logprobs = body.integer("logprobs", 0, kMaxLogprobs);
  if (call.echo && call.logprobs) {
    RequestFields::refuse_unsupported("logprobs", "is not supported together with echo");
  }
  if (std::ssize(call.prompts) * call.choices > kMaxChoices) {
    RequestFields::refuse("n", fmt::format("at most {} choices of all prompts", kMaxChoices));
  }
}

}  // namespace

GenerationCall parse_generation(std::string_view body, Endpoint endpoint,
                                const SamplingOptions& defaults) {
  const OrderedJson document = parse_body(body);
  const RequestFields fields(document);
  GenerationCall call;
  call.endpoint = endpoint;
  call.sampling = defaults;
  call.model = fields.text("model");
  refuse_unsupported_fields(fields);
  read_sampling(fields, call);
  call.stop_strings = read_stop(fields);
  call.choices = fields.integer("n", 1, kMaxChoices).value_or(1);
  for (const char* key : {"max_tokens", "max_completion_tokens"}) {
    if (const auto most = fields.integer(key, 1, kMostTokens)) call.max_tokens = most;
  }
  call.ignore_end = fields.boolean("ignore_eos");
  call.stream = fields.boolean("stream");
  if (const OrderedJson* options = fields.find("stream_options")) {
    if (!options->is_object()) RequestFields::refuse("stream_options", "an object");
    if (!call.stream) RequestFields::refuse("stream_options", "stream true with it");
    call.include_usage = RequestFields(*options).boolean("include_usage");
  }
  endpoint == Endpoint::chat ? read_chat(fields, call) : read_completion(fields, call);
  return call;
}

TokenizeCall parse_tokenize(std::string_view body) {
  const OrderedJson document = parse_body(body);
  const RequestFields fields(document);
  TokenizeCall call;
  call.add_special = fields.boolean("add_special_tokens", true);
  for (const char* key : {"prompt", "content"}) {
    if (auto text = fields.text(key)) call.text = std::move(text);
  }
  if (!call.text && !fields.find("messages")) RequestFields::refuse("prompt", "a text");
  if (!call.text) call.messages = read_messages(fields);
  return call;
}

std::vector<TokenId> parse_detokenize(std::string_view body) {
  const OrderedJson document = parse_body(body);
  const OrderedJson* tokens = RequestFields(document).find("tokens");
  if (!tokens || !tokens->is_array()) RequestFields::refuse("tokens", "a list of token ids");
  return token_ids_of(*tokens, "tokens");
}

}  // namespace klotski
