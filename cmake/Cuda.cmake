# CUDA for the targets that use it (included once language CUDA is enabled):
#   megatoken_cuda    code generation for MEGATOKEN_CUDA_ARCHITECTURES, the static CUDA runtime, the CUDA headers
#   cudnn_frontend    NVIDIA's header-only cudnn-frontend and cuDNN's headers
# Neither links a CUDA library other than the static runtime: cuDNN, cuBLASLt and NCCL are opened at run time, so the
# program starts where none of them, nor a driver, is installed.
set(MEGATOKEN_CUDA_ARCHITECTURES "90a" CACHE STRING "GPU architectures, a list such as 80;89;90a;100a")
set(MEGATOKEN_CUDNN_FRONTEND "" CACHE PATH
    "cudnn-frontend: the folder with cudnn_frontend.h, or the wheel nvidia_cudnn_frontend-*.whl; found through python3 when empty")
set(MEGATOKEN_CUDNN_INCLUDE "" CACHE PATH "The folder with cudnn.h; found when empty")

# CMake before 3.26 doesn't know that nvcc 12 and later take C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.0)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()

find_package(CUDAToolkit REQUIRED)

add_library(megatoken_cuda INTERFACE)
foreach(arch ${MEGATOKEN_CUDA_ARCHITECTURES})
  target_compile_options(megatoken_cuda INTERFACE
    $<$<COMPILE_LANGUAGE:CUDA>:-gencode=arch=compute_${arch},code=sm_${arch}>)
endforeach()
target_compile_options(megatoken_cuda INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-march=${MEGATOKEN_MARCH}>)
# fmt 9 takes nvcc for a compiler without constexpr, and then not all of its own functions agree on that.
target_compile_definitions(megatoken_cuda INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)
target_link_libraries(megatoken_cuda INTERFACE CUDA::cudart_static ${CMAKE_DL_LIBS})

# python3 -c "..." prints a folder, or nothing when the package is not there.
function(megatoken_python_folder result code)
  find_program(MEGATOKEN_PYTHON python3)
  set(found "")
  if(MEGATOKEN_PYTHON)
    execute_process(COMMAND ${MEGATOKEN_PYTHON} -c "${code}" OUTPUT_VARIABLE found ERROR_QUIET
      OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

set(frontend "${MEGATOKEN_CUDNN_FRONTEND}")
if(NOT frontend)
  # The wheel's include/ lies beside the packages, so only the list of installed files knows it.
  megatoken_python_folder(frontend
"import importlib.metadata as m
for f in m.files('nvidia-cudnn-frontend'):
    if f.name == 'cudnn_frontend.h': print(f.locate().resolve().parent); break")
elseif(frontend MATCHES "\\.whl$")
  set(unpacked ${CMAKE_BINARY_DIR}/cudnn_frontend)
  if(NOT EXISTS ${unpacked}/include/cudnn_frontend.h)
    file(ARCHIVE_EXTRACT INPUT ${frontend} DESTINATION ${unpacked} PATTERNS "include/*")
  endif()
  set(frontend ${unpacked}/include)
endif()
if(NOT EXISTS "${frontend}/cudnn_frontend.h")
  message(FATAL_ERROR "cudnn_frontend.h not found (looked in '${frontend}'): "
    "pip install nvidia-cudnn-frontend, or set MEGATOKEN_CUDNN_FRONTEND to its include folder or to the wheel")
endif()

megatoken_python_folder(cudnn_wheel
  "import nvidia.cudnn as c; print(list(c.__path__)[0] + '/include')")
if(MEGATOKEN_CUDNN_INCLUDE)
  set(cudnn_include ${MEGATOKEN_CUDNN_INCLUDE})
else()
  find_path(MEGATOKEN_CUDNN_FOUND cudnn.h PATHS ${CUDAToolkit_INCLUDE_DIRS} ${cudnn_wheel})
  set(cudnn_include ${MEGATOKEN_CUDNN_FOUND})
endif()
if(NOT EXISTS "${cudnn_include}/cudnn.h")
  message(FATAL_ERROR "cudnn.h not found: install cuDNN 9's headers (package cudnn9-cuda-13 or "
    "pip install nvidia-cudnn-cu13), or set MEGATOKEN_CUDNN_INCLUDE to the folder with cudnn.h")
endif()
message(STATUS "cudnn-frontend ${frontend}, cuDNN headers ${cudnn_include}")

# NCCL's header: in the toolkit, in /usr/include (package libnccl-dev), or beside cudnn-frontend's.
find_path(MEGATOKEN_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${frontend})
if(NOT MEGATOKEN_NCCL_INCLUDE)
  message(FATAL_ERROR "nccl.h not found: install NCCL 2.18's headers or later (package libnccl-dev or "
    "pip install nvidia-nccl-cu13), or set MEGATOKEN_NCCL_INCLUDE to the folder with nccl.h")
endif()

add_library(cudnn_frontend INTERFACE)
target_include_directories(cudnn_frontend SYSTEM INTERFACE ${frontend} ${cudnn_include} ${CUDAToolkit_INCLUDE_DIRS})
# Without NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING: the program defines cuDNN's 13 entry points itself and forwards them to
# the library that it opens (docs/cudnn.md says why).
target_compile_definitions(cudnn_frontend INTERFACE CUDNN_FRONTEND_SKIP_JSON_LIB)
target_link_libraries(cudnn_frontend INTERFACE CUDA::cudart_static ${CMAKE_DL_LIBS})
target_link_libraries(megatoken_cuda INTERFACE cudnn_frontend)
target_include_directories(megatoken_cuda SYSTEM INTERFACE ${MEGATOKEN_NCCL_INCLUDE})
