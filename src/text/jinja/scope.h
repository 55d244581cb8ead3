#pragma once

#include "text/jinja/ast.h"

namespace klotski::jinja {

// Gives every variable of a template its slot and every filter and test its function. Throws
// SyntaxError, for instance for an unknown filter.
//
// Jinja decides at compile time which variable a name means, and a scope copies outer variables on
// entry; looking names up through a chain of maps while rendering gives other results in corner
// cases. So Jinja's analysis is made here, and frames are plain arrays of slots.
void resolve_names(Template* tree);

}  // namespace klotski::jinja
