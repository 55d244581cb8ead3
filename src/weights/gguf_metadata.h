#pragma once

#include "base/json.h"
#include "weights/gguf_cursor.h"

namespace klotski {

// Reads `count` keys with their values: numbers, truth values, texts and arrays of these. Refuses a
// key that is there twice.
Json read_gguf_metadata(GgufCursor& cursor, uint64_t count);

}  // namespace klotski
