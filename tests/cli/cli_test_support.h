// Runs the built program as a user does.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace megatoken::testing {

struct Outcome {
  int status = -1;
  std::string out, err;
};

class Directory {
 public:
  Directory() {
    std::string name = (std::filesystem::temp_directory_path() / "megatoken_cli_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(*this / name).parent_path());
    std::ofstream(*this / name, std::ios::binary) << text;
    return *this / name;
  }

 private:
  std::string path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// `arguments` as the shell reads them.
inline Outcome run(const std::string& arguments) {
  const Directory directory;
  const std::string command =
      std::string(MEGATOKEN_PROGRAM) + " " + arguments + " >" + (directory / "out") + " 2>" + (directory / "err");
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(directory / "out"), read_file(directory / "err")};
}

// The outcome is exactly one line on stderr, "error: ...", and `status`.
inline void expect_error(const std::string& arguments, int status, const std::string& part) {
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.status, status) << arguments;
  EXPECT_THAT(outcome.err, ::testing::StartsWith("error: ")) << arguments;
  EXPECT_THAT(outcome.err, ::testing::HasSubstr(part)) << arguments;
  EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
}

}  // namespace megatoken::testing
