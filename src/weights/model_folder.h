#pragma once

#include <filesystem>
#include <string_view>

namespace klotski {

// The folder of a model, or its GGUF file. The model is one of
//  - a path to an existing folder, or to a GGUF file, the first where the model has several;
//  - the name of a bundled model such as `tiny`, looked for in $KLOTSKI_MODELS, near the program
//    (build tree, then installation) and in the source tree;
//  - a Hugging Face repository id, `org/name` or `org/name@revision`, already in the local cache.
// Never downloads: the error says where it looked and how to fetch the model.
std::filesystem::path find_model(std::string_view model);

// Whether a file of a model folder belongs to the tokenizer or its chat template.
bool is_tokenizer_file(const std::filesystem::path& name);

}  // namespace klotski
