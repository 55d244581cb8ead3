#pragma once

#include <functional>

#include "schedule/builder.h"

namespace klotski {

// Builds tasks that bring units to where passes leave them: every kind in the order of use, into
// the memories one after the other as long as they have slots, nearest to the processors first.
// `after_each` is called after each unit.
void for_each_preloaded(const ModelDescription& model, const Policy& policy, FragmentBuilder& build,
                        const std::function<void()>& after_each);

}  // namespace klotski
