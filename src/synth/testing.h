#pragma once

#include "weights/testing.h"

// Helpers of the tests of this folder only.
namespace klotski::testing_synth {

using testing_files::content_of;
using testing_files::has_nothing;
using testing_files::kind_of;
using testing_files::ScratchFolder;
using testing_files::write_file;

}  // namespace klotski::testing_synth
