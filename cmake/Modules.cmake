# Shared compile options and the two helpers every module uses.
add_library(megatoken_options INTERFACE)
target_include_directories(megatoken_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(megatoken_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wno-missing-field-initializers -march=${MEGATOKEN_MARCH}>)
if(MEGATOKEN_SANITIZE)
  target_compile_options(megatoken_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${MEGATOKEN_SANITIZE} -fno-omit-frame-pointer>)
  target_link_options(megatoken_options INTERFACE -fsanitize=${MEGATOKEN_SANITIZE})
endif()

# megatoken_module(name deps...): src/<name>/*.cpp as the static library megatoken_<name>.
# Files ending in _cuda.cpp / .cu are left to the CUDA backend.
function(megatoken_module name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "_cuda\\.cpp$")
  if(sources)
    add_library(megatoken_${name} STATIC ${sources})
    target_link_libraries(megatoken_${name} PUBLIC megatoken_options)
    set(scope PUBLIC)
  else()
    add_library(megatoken_${name} INTERFACE)
    target_link_libraries(megatoken_${name} INTERFACE megatoken_options)
    set(scope INTERFACE)
  endif()
  foreach(dep ${ARGN})
    target_link_libraries(megatoken_${name} ${scope} ${dep})
  endforeach()
endfunction()
