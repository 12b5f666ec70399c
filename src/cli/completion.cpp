#include "cli/completion.h"

#include <fmt/format.h>

#include "base/error.h"
#include "spec/run_config_keys.h"

namespace megatoken {
namespace {

// Keys that do something, with their short forms; the others are read, but nobody needs to be offered them.
std::vector<std::pair<std::string, std::string>> offered_keys() {
  std::vector<std::pair<std::string, std::string>> keys;
  for (const KeyInfo& row : run_config_keys()) {
    if (row.use != KeyClass::honoured || row.type == ValueType::container) continue;
    keys.emplace_back(row.name, row.help);
    for (std::string_view rest = row.aliases; !rest.empty();) {
      const auto space = rest.find(' ');
      keys.emplace_back(rest.substr(0, space), row.help);
      rest = space == std::string_view::npos ? std::string_view{} : rest.substr(space + 1);
    }
  }
  return keys;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// Text between single quotes, as all three shells read it.
std::string plain(std::string_view text) {
  std::string result;
  for (const char c : text)
    if (c == '\'')
      result += "'\\''";
    else if (c != '\\')
      result += c;
  return result;
}

std::string keys_of_bash() {
  std::string text;
  for (const auto& [name, help] : offered_keys()) text += (text.empty() ? "--" : " --") + name;
  return text;
}

std::string bash(const std::vector<CompletedCommand>& commands) {
  std::string names, cases;
  for (const CompletedCommand& command : commands) {
    names += (names.empty() ? "" : " ") + command.name;
    cases += fmt::format("    {}) words=\"{}{}\" ;;\n", command.name, joined(command.options),
                         command.has_keys ? " $keys" : "");
  }
  return fmt::format(R"(# megatoken completion for bash: source <(megatoken completion bash)
_megatoken() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} words=
  local keys="{}"
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "{} --help --version" -- "$current"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
{}  esac
  if [[ $current == -* ]]; then
    current=${{current#-}} current=${{current#-}}
    COMPREPLY=($(compgen -W "$words" -- "--${{current//-/_}}"))
  else
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}}
complete -o filenames -F _megatoken megatoken
)",
                     keys_of_bash(), names, cases);
}

std::string zsh(const std::vector<CompletedCommand>& commands) {
  std::string list, cases, keys;
  for (const auto& [name, help] : offered_keys()) keys += fmt::format("    '--{}:{}'\n", name, plain(help));
  for (const CompletedCommand& command : commands) {
    list += fmt::format("    '{}:{}'\n", command.name, plain(command.help));
    cases += fmt::format("    {}) offered=({}{}) ;;\n", command.name, joined(command.options),
                         command.has_keys ? " \"${keys[@]}\"" : "");
  }
  return fmt::format(R"(#compdef megatoken
# megatoken completion for zsh: source <(megatoken completion zsh), after compinit
_megatoken() {{
  local -a commands keys offered
  commands=(
{}  )
  keys=(
{}  )
  if ((CURRENT == 2)); then
    _describe command commands
    return
  fi
  case $words[2] in
{}  esac
  if [[ $PREFIX == -* ]]; then
    _describe option offered
  else
    _files
  fi
}}
compdef _megatoken megatoken
)",
                     list, keys, cases);
}

std::string fish(const std::vector<CompletedCommand>& commands) {
  std::string text = "# megatoken completion for fish: megatoken completion fish | source\n", with_keys;
  for (const CompletedCommand& command : commands) {
    text += fmt::format("complete -c megatoken -n __fish_use_subcommand -a {} -d '{}'\n", command.name,
                        plain(command.help));
    for (const std::string& option : command.options)
      text += fmt::format("complete -c megatoken -n '__fish_seen_subcommand_from {}' -l {}\n", command.name,
                          option.substr(2));
    if (command.has_keys) with_keys += (with_keys.empty() ? "" : " ") + command.name;
  }
  for (const auto& [name, help] : offered_keys())
    text += fmt::format("complete -c megatoken -n '__fish_seen_subcommand_from {}' -l {} -r -d '{}'\n", with_keys, name,
                        plain(help));
  return text;
}

}  // namespace

std::string completion_script(const std::string& shell, const std::vector<CompletedCommand>& commands) {
  if (shell == "bash") return bash(commands);
  if (shell == "zsh") return zsh(commands);
  if (shell == "fish") return fish(commands);
  throw ConfigError("completion: {}: no such shell (there are bash, zsh, fish)", shell);
}

}  // namespace megatoken
