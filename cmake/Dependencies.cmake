# Every dependency is an installed package (./dev installs them); nothing is downloaded or vendored here.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)

# The serial OpenBLAS: ranks are threads and each splits its own products, so the library must not start threads.
# Debian's alternatives system may point libopenblas.so at another flavour; the serial one is asked for by its folder.
find_path(OPENBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas-serial REQUIRED)
find_library(OPENBLAS_LIBRARY openblas PATH_SUFFIXES openblas-serial REQUIRED)
add_library(openblas INTERFACE)
target_include_directories(openblas SYSTEM INTERFACE ${OPENBLAS_INCLUDE_DIR})
target_link_libraries(openblas INTERFACE ${OPENBLAS_LIBRARY})

# Gloo is not in every release. Without it src/comm/gloo_absent stands in for src/comm/gloo (see Modules.cmake).
find_package(Gloo QUIET)
set(MEGATOKEN_GLOO ${Gloo_FOUND})
