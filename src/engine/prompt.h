#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/description.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace klotski {

// Tokens of a plain text that the model is to continue, begun as the model expects: with the tokens
// that the tokenizer adds, or with the begin token where the tokenizer adds nothing and is not told
// not to. The text of special tokens inside it stays text unless `parse_special`. For a model with
// an encoder it is the encoder's input: sentinels in it are tokens, and it ends with an end token.
std::vector<TokenId> encode_text(const Tokenizer& tokenizer, const TokenizerConfig& config,
                                 const ModelDescription& model, std::string_view text,
                                 bool parse_special);

// The tokens that the decoder of a translating model begins with for a language, such as fra_Latn;
// empty: none. Refuses (usage) a code that is no token, and a model that does not translate.
std::vector<TokenId> language_prompt(const Tokenizer& tokenizer, const ModelDescription& model,
                                     const std::string& language);

// Refuses (usage) tokens outside the model's vocabulary; `what` names them.
void check_tokens(const ModelDescription& model, std::span<const TokenId> tokens,
                  std::string_view what);

// The variables a template is given for a conversation that the model is to continue.
OrderedJson chat_context(const TokenizerConfig& config, OrderedJson messages);

// Tokens of a conversation rendered by the model's template. Special tokens that the template
// writes are tokens; their text inside a message stays text, so that no message can end its own
// turn. `context` holds the template's variables; `messages` among them.
std::vector<TokenId> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                 OrderedJson context);

}  // namespace klotski
