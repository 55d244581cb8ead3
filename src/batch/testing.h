#pragma once

// The model of the tests of batch jobs: the bundled one, loaded once.

#include <string>

#include "batch/row.h"
#include "engine/testing/models.h"

namespace klotski {

struct TinyModel {
  std::string folder = std::string(KLOTSKI_MODELS) + "/tiny-mixtral";
  TestModel model{folder};
  Tokenizer tokenizer = Tokenizer::load(folder);
  TokenizerConfig config = TokenizerConfig::load(folder);
  ChatTemplate chat_template = ChatTemplate::parse(
      "{{ bos_token }}{% for m in messages %}{% if m.role == 'odd' %}{{ raise_exception('odd "
      "role') "
      "}}{% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:",
      "template");

  RowDefaults defaults() const {
    return {.tokenizer = tokenizer,
            .tokenizer_config = config,
            .model = model.description,
            .chat_template = &chat_template,
            .sampling = {},
            .max_tokens = 8};
  }
};

inline const TinyModel& tiny() {
  static const TinyModel model;
  return model;
}

}  // namespace klotski
