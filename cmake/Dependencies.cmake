# Every dependency is an installed package (./dev installs them); nothing is downloaded or vendored here.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
# GCC's OpenMP runtime is not instrumented: the thread sanitizer doesn't see its barriers and takes every loop for a race.
# Its builds have one thread in each; ranks and streams are threads all the same.
add_library(megatoken_openmp INTERFACE)
if(MEGATOKEN_SANITIZE MATCHES "thread")
  target_compile_options(megatoken_openmp INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-unknown-pragmas>)
else()
  target_link_libraries(megatoken_openmp INTERFACE OpenMP::OpenMP_CXX)
endif()
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)

# Gloo is not in every release. Without it src/comm/gloo_absent stands in for src/comm/gloo (see Modules.cmake).
find_package(Gloo QUIET)
set(MEGATOKEN_GLOO ${Gloo_FOUND})
