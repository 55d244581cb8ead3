#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "engine/engine.h"
#include "model/description.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace klotski {

// A row that cannot be run; other rows go on. `param` is the field at fault, if one is.
class BadRow : public Error {
 public:
  explicit BadRow(const std::string& message, std::string param = "")
      : Error(ErrorKind::usage, message), param_(std::move(param)) {}
  const std::string& param() const { return param_; }

 private:
  std::string param_;
};

// A row with the id that its answer goes to.
struct RowEnvelope {
  std::string custom_id;
  OrderedJson document;
  uint64_t json_bytes = 0;  // most bytes that reading the line held at once
};

// Throws BadRow for a line that is not a JSON object with a custom_id; does_not_fit where there is
// no memory to read it.
RowEnvelope parse_envelope(std::string_view line);

// The tokenizer and template of rows, and the values of fields that a row leaves out.
struct RowDefaults {
  const Tokenizer& tokenizer;
  const TokenizerConfig& tokenizer_config;
  const ModelDescription& model;
  const ChatTemplate* chat_template = nullptr;  // null: chat rows are refused
  SamplingOptions sampling;
  int64_t max_tokens = 256;
  std::vector<std::string> lossy{};       // written into every result
  std::vector<TokenId> decoder_prompt{};  // of every request
};

// A row that can be submitted.
struct RowRequest {
  bool chat = false;
  Request request;
  std::vector<std::string> stop_strings;
};

// Throws BadRow for a row that is wrong or not supported. Fields that do not change the answer are
// ignored.
RowRequest build_request(const RowEnvelope& row, const RowDefaults& defaults);

}  // namespace klotski
