# Shared compile options, and what a module is: megatoken_module(name deps...).

add_library(megatoken_options INTERFACE)
target_include_directories(megatoken_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(megatoken_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wno-missing-field-initializers -march=${MEGATOKEN_MARCH}>)

# Debug builds are for checking: the standard library's own assertions are on, and the kernels are fast enough to train.
set(CMAKE_CXX_FLAGS_DEBUG "-Og -g")
if(MEGATOKEN_SANITIZE)  # what they tell needs lines, no variables
  set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")
endif()
target_compile_definitions(megatoken_options INTERFACE $<$<CONFIG:Debug>:_GLIBCXX_ASSERTIONS>)

if(MEGATOKEN_SANITIZE)
  target_compile_options(megatoken_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${MEGATOKEN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer>)
  target_link_options(megatoken_options INTERFACE -fsanitize=${MEGATOKEN_SANITIZE})
endif()

# The sources of a module by name and place; no list to keep, no #ifdef for a backend that isn't there.
#   src/<name>/*.cpp and src/<name>/<folder>/*.cpp   always, except:
#   *_cuda.cpp, *.cu, cuda/, nccl/                   with MEGATOKEN_CUDA, linked to megatoken_cuda (cmake/Cuda.cmake)
#   *_cuda_absent.cpp, cuda_absent/, nccl_absent/    without it
#   gloo/                                            with Gloo, linked to it; else gloo_absent/
function(megatoken_module name)
  set(root ${CMAKE_SOURCE_DIR}/src/${name})
  file(GLOB sources CONFIGURE_DEPENDS ${root}/*.cpp ${root}/*/*.cpp)
  set(cuda_sources ${sources})
  list(FILTER cuda_sources INCLUDE REGEX "_cuda\\.cpp$|/(cuda|nccl)/[^/]+$")
  list(FILTER sources EXCLUDE REGEX "_cuda\\.cpp$|/(cuda|nccl)/[^/]+$")
  if(MEGATOKEN_CUDA)
    file(GLOB kernels CONFIGURE_DEPENDS ${root}/*.cu ${root}/*/*.cu)
    list(APPEND cuda_sources ${kernels})
    list(FILTER sources EXCLUDE REGEX "_cuda_absent\\.cpp$|/(cuda|nccl)_absent/[^/]+$")
  else()
    set(cuda_sources "")
  endif()
  if(MEGATOKEN_GLOO)
    list(FILTER sources EXCLUDE REGEX "/gloo_absent/[^/]+$")
  else()
    list(FILTER sources EXCLUDE REGEX "/gloo/[^/]+$")
  endif()

  if(sources OR cuda_sources)
    add_library(megatoken_${name} STATIC ${sources} ${cuda_sources})
    set(scope PUBLIC)
  else()
    add_library(megatoken_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_link_libraries(megatoken_${name} ${scope} megatoken_options ${ARGN})
  if(cuda_sources)
    target_link_libraries(megatoken_${name} PUBLIC megatoken_cuda)
  endif()
  if("${sources}" MATCHES "/gloo/")
    target_link_libraries(megatoken_${name} PRIVATE gloo)
  endif()
endfunction()
