#include "cli/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "base/error.h"
#include "base/log.h"
#include "cli/arguments.h"
#include "cli/completion.h"
#include "cli/help_keys.h"
#include "comm/process_ranks.h"
#include "io/file.h"

namespace megatoken {
namespace {

struct Command {
  const char* name;
  int (*run)(const Invocation&);  // nullptr: parsing it yields text, which is all
  bool has_keys;                  // takes CONFIG.yaml and --key value
  const char* help;
};
constexpr Command kCommands[] = {
    {"train", run_train, true, "Fine-tune a model"},
    {"eval", run_eval, true, "Evaluate a model on a dataset"},
    {"plan", run_plan, true, "Say what training would need: memory by buffer, step time, levers"},
    {"rehearse", run_rehearse, true, "Run one rank's share of a job of many ranks on the device at hand"},
    {"tokenize", run_tokenize, false, "Turn a text file into token ids"},
    {"inspect", run_inspect, false, "Show a model directory, a checkpoint or a dataset"},
    {"export", run_export, false, "Write a checkpoint's model as a model directory"},
    {"doctor", run_doctor, false, "Check this machine: what is missing and how to get it"},
    {"completion", nullptr, false, "Print a script that completes commands and keys in bash, zsh or fish"},
};
const std::vector<std::string> kOwnOptions = {"config", "find", "help", "help_keys", "json", "layers", "rank"};

constexpr const char* kFooter =
    "Exit status: 0 done; 2 bad command or configuration; 3 bad model, tokenizer, dataset or checkpoint file;\n"
    "4 does not fit; 5 training failed; 143, 130 stopped by a signal after saving.";

void add_command(CLI::App& app, const Command& command, Invocation& invocation, std::string& help_keys) {
  CLI::App* sub = app.add_subcommand(command.name, command.help);
  const std::string name = command.name;
  if (command.has_keys) {
    sub->add_option("--config,CONFIG.yaml", invocation.config_path,
                    "Configuration: keys of TRL, accelerate and our own");
    sub->add_option("--help_keys", help_keys,
                    "List every key and exit (--help-keys=markdown, =json: for documents and tools)")
        ->expected(0, 1)
        ->type_name("");
    sub->footer(
        "Every key of the configuration is an option as well: --learning_rate 1e-5, --bf16, --no_bf16,\n"
        "--lr_scheduler_kwargs.num_cycles 2. Underscores and hyphens are equal.");
  }
  if (name == "eval" || name == "plan" || name == "rehearse" || name == "tokenize")
    sub->add_flag("--json", invocation.json, "Print one JSON object");
  if (name == "plan")
    sub->add_option("--find", invocation.find, "Find the largest max_length, or the fewest num_processes, that fits")
        ->check(CLI::IsMember({"max_length", "num_processes"}))
        ->type_name("max_length|num_processes");
  if (name == "doctor")
    sub->add_flag("--measure", invocation.measure, "Measure what plans are priced with, and keep it for them");
  if (name == "rehearse") {
    sub->add_option("--rank", invocation.rank, "Whose share (default 0)")->check(CLI::NonNegativeNumber);
    sub->add_option("--layers", invocation.layers, "How many layers to run, scaled to all (default all)")
        ->check(CLI::PositiveNumber);
  }
  if (name == "tokenize") {
    sub->add_option("--tokenizer", invocation.tokenizer, "A directory with tokenizer.json")
        ->required()
        ->type_name("DIR");
    sub->add_option("--input", invocation.input, "The file, taken as one text")->required()->type_name("FILE");
  }
  if (name == "inspect")
    sub->add_option("PATH", invocation.path, "A model directory, a checkpoint, a .safetensors file or a dataset")
        ->required();
  if (name == "completion")
    sub->add_option("SHELL", invocation.shell, "bash, zsh or fish")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  if (name == "export") {
    sub->add_option("CHECKPOINT", invocation.path, "A checkpoint-N directory")->required();
    sub->add_option("OUT_DIR", invocation.out_dir, "The model directory to write")->required();
  }
}

// The options of each command as its parser knows them, so that completion offers what --help shows.
std::vector<CompletedCommand> completed_commands(const CLI::App& app) {
  std::vector<CompletedCommand> completed;
  for (const Command& command : kCommands) {
    CompletedCommand entry{command.name, command.help, command.has_keys, {}};
    for (const CLI::Option* option : app.get_subcommand(command.name)->get_options())
      for (const std::string& name : option->get_lnames()) entry.options.push_back("--" + name);
    completed.push_back(std::move(entry));
  }
  return completed;
}

// What was asked for; text to print instead of running anything (help, version).
struct Parsed {
  Invocation invocation;
  const Command* command = nullptr;
  std::string text;
};

const Command* find_command(const std::string& name) {
  for (const Command& command : kCommands)
    if (name == command.name) return &command;
  return nullptr;
}

Parsed parse(const std::vector<std::string>& arguments) {
  Parsed parsed;
  std::string help_keys = "none";
  CLI::App app("megatoken fine-tunes language models on million-token sequences.", "megatoken");
  app.set_version_flag("--version", "megatoken " MEGATOKEN_VERSION);
  app.footer(kFooter);
  app.require_subcommand(1);
  for (const Command& command : kCommands) add_command(app, command, parsed.invocation, help_keys);

  const Command* command = arguments.empty() ? nullptr : find_command(arguments.front());
  if (command == nullptr && !arguments.empty() && !arguments.front().starts_with('-')) {
    std::string names;
    for (const Command& known : kCommands) names += std::string(names.empty() ? "" : ", ") + known.name;
    throw ConfigError("{}: unknown command (there are {})", printable(arguments.front()), names);
  }
  std::vector<std::string> rest = arguments;
  if (command != nullptr && command->has_keys) {
    SplitArguments split = split_arguments({arguments.begin() + 1, arguments.end()}, kOwnOptions);
    parsed.invocation.overrides = std::move(split.overrides);
    rest = std::move(split.others);
    rest.insert(rest.begin(), command->name);
  }
  std::reverse(rest.begin(), rest.end());  // CLI11 takes them from the back
  try {
    app.parse(rest);
  } catch (const CLI::CallForHelp&) {
    parsed.text = app.help();
    return parsed;
  } catch (const CLI::CallForAllHelp&) {
    parsed.text = app.help("", CLI::AppFormatMode::All);
    return parsed;
  } catch (const CLI::CallForVersion& version) {
    parsed.text = std::string(version.what()) + "\n";
    return parsed;
  } catch (const CLI::ParseError& problem) {
    std::string message = problem.what();
    std::replace(message.begin(), message.end(), '\n', ' ');
    throw ConfigError("{} (megatoken{} --help)", message, command != nullptr ? " " + std::string(command->name) : "");
  }
  if (help_keys == "markdown")
    parsed.text = keys_as_markdown();
  else if (help_keys == "json")
    parsed.text = keys_as_json();
  else if (help_keys != "none")
    parsed.text = keys_as_text();
  if (app.got_subcommand("completion"))
    parsed.text = completion_script(parsed.invocation.shell, completed_commands(app));
  parsed.command = find_command(app.get_subcommands().front()->get_name());
  parsed.invocation.command = parsed.command->name;
  return parsed;
}

}  // namespace

RunConfig read_config(const Invocation& invocation) {
  RunConfig config = load_run_config(invocation.config_path, invocation.overrides);
  for (const auto& [name, value] : config.training.env) setenv(name.c_str(), value.c_str(), 1);
  return config;
}

void print_notices(const RunConfig& config) {
  for (const std::string& notice : config.notices) log_line(notice);
}

int run_program(const std::vector<std::string>& arguments) {
  try {
    const Parsed parsed = parse(arguments);
    if (!parsed.text.empty()) {
      std::fwrite(parsed.text.data(), 1, parsed.text.size(), stdout);
      return std::fflush(stdout) == 0 ? 0 : static_cast<int>(ExitCode::failed);
    }
    return parsed.command->run(parsed.invocation);
  } catch (const JobError& error) {
    if (error.told_here()) log_error_line(error.what());
    return static_cast<int>(error.code());
  } catch (const Error& error) {
    log_error_line(error.what());
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    log_error_line("out of host memory; megatoken plan says what the run needs, host_memory sets a budget");
    return static_cast<int>(ExitCode::does_not_fit);
  } catch (const std::exception& error) {
    log_error("internal error: {}", error.what());
    return static_cast<int>(ExitCode::failed);
  }
}

}  // namespace megatoken
