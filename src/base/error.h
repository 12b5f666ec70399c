// Typed exceptions. Each carries the exit status of the program (see docs/errors.md); what() is the one line a user
// sees, naming the file, key, line number, tensor or rank at fault and what to do about it.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace megatoken {

enum class ExitCode : int {
  ok = 0,
  config = 2,        // bad command or configuration
  file = 3,          // bad model, tokenizer, dataset or checkpoint file
  does_not_fit = 4,  // refused before step 1
  failed = 5,        // training failed: non-finite value, lost rank, full disk
  interrupted = 130,
  terminated = 143,
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

template <ExitCode kCode>
class TypedError : public Error {
 public:
  explicit TypedError(const std::string& message) : Error(kCode, message) {}
  template <typename... Args>
  explicit TypedError(fmt::format_string<Args...> format, Args&&... args)
      : Error(kCode, fmt::format(format, std::forward<Args>(args)...)) {}
};

using ConfigError = TypedError<ExitCode::config>;
using FileError = TypedError<ExitCode::file>;
using FitError = TypedError<ExitCode::does_not_fit>;
using TrainError = TypedError<ExitCode::failed>;

// A broken contract inside the program (a shape that cannot be, a call out of order): a bug, never a user's mistake.
class InternalError : public Error {
 public:
  template <typename... Args>
  explicit InternalError(fmt::format_string<Args...> format, Args&&... args)
      : Error(ExitCode::failed, "internal error: " + fmt::format(format, std::forward<Args>(args)...)) {}
};

// check(condition, "format", args...) throws InternalError when the condition is false.
template <typename... Args>
void check(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    throw InternalError(format, std::forward<Args>(args)...);
}

}  // namespace megatoken
