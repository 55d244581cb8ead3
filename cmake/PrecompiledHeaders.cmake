# Headers of other libraries that most files include, parsed once instead of once per file. Builds for
# tests turn this on; others, and clang-tidy, still notice a file that lacks an #include. CLI11 is not
# among them: with it, files that do not use it took longer to compile than without any of this.
set(klotski_common_headers
  <fmt/format.h> <nlohmann/json.hpp> <algorithm> <array> <chrono> <cmath> <cstdint> <filesystem> <functional>
  <map> <memory> <optional> <random> <span> <string> <string_view> <utility> <vector>)

# klotski_precompiled(NAME LINKS ... HEADERS ...): headers that other targets take by REUSE_FROM
# NAME.
function(klotski_precompiled name)
  cmake_parse_arguments(arg "" "" "LINKS;HEADERS" ${ARGN})
  file(CONFIGURE OUTPUT ${name}.cpp CONTENT "")
  add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE klotski_options fmt::fmt nlohmann_json::nlohmann_json ${arg_LINKS})
  target_precompile_headers(${name} PRIVATE ${klotski_common_headers} ${arg_HEADERS})
endfunction()

klotski_precompiled(klotski_pch)
if(BUILD_TESTING)
  klotski_precompiled(klotski_test_pch LINKS GTest::gtest HEADERS <gtest/gtest.h>)
  # Programs are not compiled for a shared library, as our own libraries may be.
  set_target_properties(klotski_test_pch PROPERTIES POSITION_INDEPENDENT_CODE OFF)
endif()
