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

# Gloo is not in every release. Without it src/comm/gloo_absent stands in for src/comm/gloo (see Modules.cmake).
find_package(Gloo QUIET)
set(MEGATOKEN_GLOO ${Gloo_FOUND})
