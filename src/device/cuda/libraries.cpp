#include "device/cuda/libraries.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <glob.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"

namespace megatoken {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Folders that match a pattern of the shell, in its order.
void add_matches(const std::string& pattern, std::vector<std::string>& folders) {
  glob_t found{};
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
    for (std::size_t i = 0; i < found.gl_pathc; ++i) folders.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
}

// <prefix> of an interpreter at <prefix>/bin/python3.
void add_wheels(const std::string& prefix, std::vector<std::string>& folders) {
  for (const char* packages : {"site-packages", "dist-packages"}) {
    const std::string root = prefix + "/lib/python3*/" + packages + "/nvidia/";
    for (const char* wheel : {"cu13", "cudnn", "cublas", "nccl"}) add_matches(root + wheel + "/lib", folders);
  }
}

std::vector<std::string> folders() {
  std::vector<std::string> all;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    const std::string home = environment(name);
    if (!home.empty()) all.push_back(home + "/lib64");
  }
  all.emplace_back("/usr/local/cuda/lib64");
  if (const std::string env = environment("VIRTUAL_ENV"); !env.empty()) add_wheels(env, all);
  std::istringstream path(environment("PATH"));
  for (std::string bin; std::getline(path, bin, ':');) {
    if (bin.empty() || ::access((bin + "/python3").c_str(), X_OK) != 0) continue;
    const std::size_t slash = bin.find_last_of('/', bin.size() - (bin.back() == '/' ? 2 : 1));
    if (slash != std::string::npos) add_wheels(bin.substr(0, slash), all);
    break;
  }
  add_wheels("/usr/local", all);
  return all;
}

void* open(const std::string& soname, const char* title, const char* remedy) {
  if (void* handle = ::dlopen(soname.c_str(), RTLD_NOW | RTLD_GLOBAL)) return handle;
  std::string why = ::dlerror();
  for (const std::string& folder : folders()) {
    const std::string file = folder + "/" + soname;
    if (::access(file.c_str(), R_OK) != 0) continue;
    if (void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL)) return handle;
    why = ::dlerror();
  }
  throw FitError("{} ({}) can't be opened: {}; {}, or put its folder into LD_LIBRARY_PATH", title, soname, why, remedy);
}

}  // namespace

void* cublaslt_library() {
  constexpr int kMajor = CUDART_VERSION / 1000;
  static void* const handle =
      open(fmt::format("libcublasLt.so.{}", kMajor), "cuBLASLt",
           "install it (Debian/Ubuntu package libcublas-13-0 of NVIDIA's repository, or pip install nvidia-cublas)");
  return handle;
}

void* cudnn_library() {
  static void* const handle = open("libcudnn.so.9", "cuDNN 9",
                                   "install it (package cudnn9-cuda-13 of NVIDIA's repository, or pip install "
                                   "nvidia-cudnn-cu13)");
  return handle;
}

void* nccl_library() {
  static void* const handle =
      open("libnccl.so.2", "NCCL",
           "ranks on several GPUs need it: install it (package libnccl2 of NVIDIA's repository, or pip install "
           "nvidia-nccl-cu13)");
  return handle;
}

}  // namespace megatoken
