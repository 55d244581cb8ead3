# The Python package: the extension module klotski._engine, the program and the bundled models, installed as the component
# `python` where scikit-build-core wants them (pyproject.toml).
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module ${SKBUILD_SABI_COMPONENT})
find_package(nanobind CONFIG REQUIRED)

nanobind_add_module(_engine STABLE_ABI NB_STATIC NOMINSIZE NB_SUPPRESS_WARNINGS ${PROJECT_SOURCE_DIR}/src/python/bindings.cpp)
target_link_libraries(_engine PRIVATE klotski_python)
target_compile_definitions(_engine PRIVATE KLOTSKI_VERSION="${PROJECT_VERSION}")

install(TARGETS _engine LIBRARY DESTINATION klotski COMPONENT python)
install(PROGRAMS $<TARGET_FILE:klotski> DESTINATION klotski COMPONENT python)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/ DESTINATION klotski/models COMPONENT python)
