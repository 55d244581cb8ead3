# Writes FILE, a source that names the commit of the tree in SOURCE, unless it says so already: then nothing is
# compiled anew. A tree without a history of its own has an unknown commit.
#   cmake -DSOURCE=FOLDER -DFILE=FILE -P Commit.cmake
set(commit unknown)
find_package(Git QUIET)
if(GIT_EXECUTABLE)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE} rev-parse --show-prefix
    OUTPUT_VARIABLE folder_in_repository RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT failed AND folder_in_repository STREQUAL "")
    execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE} describe --always --abbrev=7 --exclude=* "--dirty= with changes"
      OUTPUT_VARIABLE described RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT failed)
      set(commit "${described}")
    endif()
  endif()
endif()
set(text "#include \"cli/commit.h\"

namespace klotski {

std::string_view commit_of_program() { return \"${commit}\"; }

}  // namespace klotski
")
set(found "")
if(EXISTS ${FILE})
  file(READ ${FILE} found)
endif()
if(NOT found STREQUAL text)
  file(WRITE ${FILE} "${text}")
endif()
