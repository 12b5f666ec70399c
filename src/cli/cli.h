// The command line: what was asked for, and one function a subcommand. Each returns the exit status and throws Error;
// run_program turns whatever is thrown into one line and its exit status (docs/errors.md).
#pragma once

#include <string>
#include <vector>

#include "spec/run_config.h"

namespace megatoken {

struct Invocation {
  std::string command;                 // "train", "eval", ...
  std::string config_path;             // CONFIG.yaml of train, eval, plan; empty: keys of the command line alone
  std::vector<KeyOverride> overrides;  // --key value, in order
  std::string path;                    // of inspect; the CHECKPOINT of export
  std::string out_dir;                 // of export
  std::string tokenizer, input;        // of tokenize
  std::string find;                    // of plan: "max_length", "num_processes" or ""
  bool json = false;                   // print one JSON object
  int64 rank = 0, layers = 0;          // of rehearse
  bool measure = false;                // of doctor
  std::string shell;                   // of completion
};

int run_train(const Invocation& invocation);
int run_eval(const Invocation& invocation);
int run_plan(const Invocation& invocation);
int run_rehearse(const Invocation& invocation);
int run_tokenize(const Invocation& invocation);
int run_inspect(const Invocation& invocation);
int run_export(const Invocation& invocation);
int run_doctor(const Invocation& invocation);

// The run's configuration, its env already in the environment. Its notices are not printed yet (print_notices).
RunConfig read_config(const Invocation& invocation);
void print_notices(const RunConfig& config);

// The whole program: parses, runs the command, prints an error as one line. Returns the exit status.
int run_program(const std::vector<std::string>& arguments);

}  // namespace megatoken
