#pragma once

#include <filesystem>
#include <memory>

#include "batch/byte_source.h"

namespace klotski {

// Whether this program was built with Zstandard.
bool have_zstandard();

// The unpacked bytes of Zstandard frames; `path` is for messages. Refuses (usage) where this
// program was built without Zstandard.
std::unique_ptr<ByteSource> zstandard_bytes(std::unique_ptr<ByteSource> packed,
                                            const std::filesystem::path& path);

}  // namespace klotski
