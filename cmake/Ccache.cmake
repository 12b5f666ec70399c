# Compiles through ccache where it is installed, unless a launcher was chosen on the command line.
#   CCACHE_BASEDIR    paths inside the checkout count as relative, so that another clone of it finds the same results
#   CCACHE_NAMESPACE  with -march=native a result belongs to one kind of processor; the flag's text doesn't say which
find_program(CCACHE_PROGRAM ccache)
find_program(ENV_PROGRAM env)
if(CCACHE_PROGRAM AND ENV_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(settings CCACHE_BASEDIR=${CMAKE_SOURCE_DIR})
  if(MEGATOKEN_MARCH STREQUAL "native")
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -march=native -Q --help=target OUTPUT_VARIABLE target ERROR_QUIET)
    string(SHA1 processor "${target}")
    string(SUBSTRING ${processor} 0 12 processor)
    list(APPEND settings CCACHE_NAMESPACE=${processor})
  endif()
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ENV_PROGRAM} ${settings} ${CCACHE_PROGRAM})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
