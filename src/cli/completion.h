// Shell completion from the same definitions as --help and the key table.
#pragma once

#include <string>
#include <vector>

namespace megatoken {

struct CompletedCommand {
  std::string name, help;
  bool has_keys = false;             // takes CONFIG.yaml and every key of the table
  std::vector<std::string> options;  // of its own, with "--"
};

// A script for bash, zsh or fish, to be sourced; ConfigError for another shell.
std::string completion_script(const std::string& shell, const std::vector<CompletedCommand>& commands);

}  // namespace megatoken
