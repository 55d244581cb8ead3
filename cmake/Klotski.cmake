# One library target per folder of src/, each with an explicit link list, so that the linker repeats
# the layering rule that tools/check_layers.py enforces on the includes.

add_library(klotski_options INTERFACE)
target_include_directories(klotski_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(klotski_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wconversion;-Wno-sign-conversion>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 takes std::string's own copies for overlapping, endless or misplaced ones at -O3 (its bug 105651).
  target_compile_options(klotski_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict;-Wno-stringop-overflow;-Wno-array-bounds>")
endif()
if(CMAKE_POSITION_INDEPENDENT_CODE)
  # Code for a shared library may be inlined as in a program: nobody replaces our functions there.
  target_compile_options(klotski_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition;-fvisibility=hidden>")
endif()
if(KLOTSKI_WERROR)
  target_compile_options(klotski_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(KLOTSKI_SANITIZE)
  target_compile_options(klotski_options INTERFACE
    -fsanitize=${KLOTSKI_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # On x86-64 clang 14 cannot write this sanitizer's data before a coroutine.
    target_compile_options(klotski_options INTERFACE
      "$<$<STREQUAL:$<TARGET_PROPERTY:NAME>,klotski_server>:-fno-sanitize=function>")
  endif()
  if(KLOTSKI_SANITIZE MATCHES "address.*undefined")
    # What the address sanitizer sees by itself; checked a second time it takes a sixth of the compiler's time.
    target_compile_options(klotski_options INTERFACE -fno-sanitize=null,object-size)
  endif()
  target_link_options(klotski_options INTERFACE -fsanitize=${KLOTSKI_SANITIZE})
endif()
if(KLOTSKI_FUZZ)
  # libFuzzer watches every comparison in code that reads files. Elsewhere, in arithmetic above all,
  # that would only make the tests two to three times as long.
  set(watched klotski_base klotski_tensor klotski_text klotski_hardware klotski_weights klotski_model
    klotski_experts klotski_session klotski_batch klotski_server)
  target_compile_options(klotski_options INTERFACE -fsanitize=fuzzer-no-link
    "$<$<NOT:$<IN_LIST:$<TARGET_PROPERTY:NAME>,${watched}>>:-fno-sanitize-coverage=inline-8bit-counters,pc-table,indirect-calls,trace-cmp>")
endif()

# klotski_library(FOLDER SOURCES ... [LINKS ...] [PRIVATE_LINKS ...] [TESTS ...] [ALONE ...])
# TESTS are the unit tests in the folder; they become one program, klotski_FOLDER_test. ALONE are sources
# and tests that define a name which another file of the folder defines too: they are not compiled
# together with it.
function(klotski_library folder)
  cmake_parse_arguments(arg "" "" "SOURCES;LINKS;PRIVATE_LINKS;TESTS;ALONE" ${ARGN})
  # CMake from 3.31 on compiles CUDA files together as well; their names are made for being alone.
  set(cuda_files ${arg_SOURCES})
  list(FILTER cuda_files INCLUDE REGEX "\\.cu$")
  set_source_files_properties(${arg_ALONE} ${cuda_files} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  add_library(klotski_${folder} STATIC ${arg_SOURCES})
  set_property(GLOBAL APPEND PROPERTY KLOTSKI_LIBRARIES klotski_${folder})
  target_link_libraries(klotski_${folder} PUBLIC klotski_options ${arg_LINKS} PRIVATE ${arg_PRIVATE_LINKS})
  if(KLOTSKI_PCH)
    target_precompile_headers(klotski_${folder} REUSE_FROM klotski_pch)
  endif()
  if(BUILD_TESTING AND arg_TESTS)
    klotski_test(klotski_${folder}_test SOURCES ${arg_TESTS} LINKS klotski_${folder} ${arg_PRIVATE_LINKS})
  endif()
endfunction()

# klotski_test(NAME SOURCES ... LINKS ... [LABEL ...]): a GoogleTest program; tests/data is KLOTSKI_TEST_DATA.
function(klotski_test name)
  cmake_parse_arguments(arg "" "LABEL" "SOURCES;LINKS" ${ARGN})
  set(labels)
  if(arg_LABEL)
    set(labels LABELS ${arg_LABEL})
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINKS} GTest::gtest_main)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  if(KLOTSKI_PCH)
    target_precompile_headers(${name} REUSE_FROM klotski_test_pch)
  endif()
  # The tested code is optimised as users get it; the tests themselves only have to compile quickly.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  target_compile_definitions(${name} PRIVATE
    KLOTSKI_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
    KLOTSKI_MODELS="${PROJECT_SOURCE_DIR}/models")
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT 300 ${labels})
endfunction()
