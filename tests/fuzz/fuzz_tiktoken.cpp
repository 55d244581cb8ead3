// The input is a ranks file, a NUL and the JSON that describes it. Whatever loads must tokenize;
// only Error may come out.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/byte_level.h"
#include "text/tokenizer_parts.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace klotski;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = std::min(input.find('\0'), size);
  const std::string_view description = input.substr(std::min(cut + 1, size));
  constexpr std::string_view kText = "Hello  it's 12345 na\u00EFve \u6771\u4EAC <s>\r\n\tabab\xFF";
  try {
    const auto parts = parse_tiktoken(input.substr(0, cut), description, "input");
    std::vector<TokenId> ids;
    parts->model->tokenize(to_byte_level(kText), ids);
    DecodeStream stream(parts->decoder);
    for (const TokenId id : ids) {
      const auto token = parts->decoded_text(id, false);
      if (!token) std::abort();  // the model made up a token
      stream.push(std::string(*token));
    }
    stream.finish();
  } catch (const Error&) {
  }
  return 0;
}
