// The program's messages. One logger: information to stdout, warnings and errors to stderr, as plain lines.
// Only rank 0 speaks (set_log_silent on the others' threads).
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace megatoken {

// Silences log_info and log_warning on the calling thread (ranks other than 0).
void set_log_silent(bool silent);

void log_line(std::string_view text);      // stdout
void log_warning_line(std::string_view text);  // stderr, "warning: ..."
void log_error_line(std::string_view text);    // stderr, "error: ..."; never silenced

template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_warning_line(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_error_line(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace megatoken
