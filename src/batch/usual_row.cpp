#include "batch/usual_row.h"

#include <algorithm>

namespace klotski {

UsualRow usual_row(InputFile& input, const RowDefaults& defaults, int64_t most) {
  UsualRow sum;
  int64_t rows = 0;
  input.rewind();
  for (InputLine line; rows < most && input.next(line);) {
    if (line.too_long) continue;
    try {
      const Request request = build_request(parse_envelope(line.text), defaults).request;
      sum.prompt_tokens += static_cast<int64_t>(request.prompt.size());
      sum.generated_tokens += request.max_tokens;
      sum.most_tokens = std::max(sum.most_tokens,
                                 static_cast<int64_t>(request.prompt.size()) + request.max_tokens);
      ++rows;
    } catch (const Error& error) {  // a row that will be an error row
      if (error.kind() == ErrorKind::internal) throw;
    }
  }
  input.rewind();
  if (rows == 0) return {};
  return {.prompt_tokens = sum.prompt_tokens / rows,
          .generated_tokens = sum.generated_tokens / rows,
          .most_tokens = sum.most_tokens};
}

}  // namespace klotski
