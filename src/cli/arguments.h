// Splits a command line into keys of the configuration and everything else, by the key table.
#pragma once

#include <string>
#include <vector>

#include "spec/run_config.h"

namespace megatoken {

struct SplitArguments {
  std::vector<KeyOverride> overrides;
  std::vector<std::string> others;  // positionals and the command's own options, in order
};

// As HfArgumentParser reads them: --key value, --key=value, --flag, --no_flag, --list a b c; underscores and hyphens
// are equal; a value may begin with one hyphen (-1). `own_options` are left alone ("json", "find", ...). Throws
// ConfigError for an unknown --key, suggesting the nearest.
SplitArguments split_arguments(const std::vector<std::string>& arguments, const std::vector<std::string>& own_options);

}  // namespace megatoken
