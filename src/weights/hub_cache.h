#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace klotski {

// A model of the Hugging Face hub: `org/name` or `name`, with an optional `@revision`.
struct HubModel {
  std::string id;
  std::string revision;  // a branch, a tag or a commit; "main" where none is given
};

// A model by its id; nothing where the text breaks the hub's rules for ids, which also keep it out
// of other folders.
std::optional<HubModel> parse_hub_model(std::string_view text);

// The folder where the hub's own tools keep models, by their environment variables; nothing where
// none of them nor HOME is set.
std::optional<std::filesystem::path> hub_cache_folder();

// The folder of the model's files in the cache, or nothing. Throws where the cache is malformed.
std::optional<std::filesystem::path> find_in_hub_cache(const std::filesystem::path& cache,
                                                       const HubModel& model);

}  // namespace klotski
