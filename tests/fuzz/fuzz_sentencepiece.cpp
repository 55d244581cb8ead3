// The input is a SentencePiece .model. Whatever loads must encode and decode; only Error may come
// out.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace klotski;
  constexpr std::string_view kText =
      "Hello  world, it's a b c 12345 na\u00EFve e\u0301 \u6771\u4EAC \U0001F600\r\n\t<s>abab\xFF";
  try {
    const Tokenizer tokenizer =
        Tokenizer::from_sentencepiece({reinterpret_cast<const char*>(data), size}, "input");
    const auto ids = tokenizer.encode(kText, {.add_special = true});
    const std::string text = tokenizer.decode(ids);
    if (!is_valid_utf8(text)) std::abort();
    StreamingDetokenizer stream(tokenizer);
    std::string streamed;
    for (const TokenId id : ids) streamed += stream.push(id);
    if (streamed + stream.finish() != text) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
