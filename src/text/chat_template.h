#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/json.h"

namespace klotski {

// Budgets of one rendering. The defaults let conversations of tens of megabytes through and stop a
// hostile template within seconds.
struct TemplateLimits {
  uint64_t max_steps = 100'000'000;
  int max_depth = 600;  // nested evaluations: statements, expressions and macro calls together
  uint64_t max_output_bytes = 256 * kMiB;
  uint64_t max_memory_bytes =
      512 * kMiB;  // approximate bytes of all values made, dead ones included
};

namespace jinja {
struct Template;
}

// A chat template in the Jinja language, as Hugging Face's apply_chat_template runs it: a sandbox
// without a loader, trim_blocks and lstrip_blocks on, autoescape off. Values are plain data; a
// template can reach nothing but its variables.
class ChatTemplate {
 public:
  // Throws a bad_model error "name:line: ..." for a source that is not a template.
  static ChatTemplate parse(std::string_view source, std::string_view name,
                            TemplateLimits limits = {});

  // `context` is an object with the template's variables. `now` is the time that strftime_now
  // formats; the local time unless given. Throws a bad_model error, also when the template calls
  // raise_exception; the message then ends with the template's own, made one line and cut where it
  // is long. Strings that are not UTF-8 are repaired with U+FFFD.
  std::string render(const OrderedJson& context,
                     const std::optional<std::tm>& now = std::nullopt) const;

 private:
  ChatTemplate(std::shared_ptr<const jinja::Template> compiled, std::string name,
               TemplateLimits limits);

  std::shared_ptr<const jinja::Template> compiled_;
  std::string name_;
  TemplateLimits limits_;
};

}  // namespace klotski
