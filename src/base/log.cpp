#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace megatoken {
namespace {

thread_local bool silent_thread = false;

spdlog::logger& out_logger() {
  static spdlog::logger logger = [] {
    spdlog::logger l("out", std::make_shared<spdlog::sinks::stdout_sink_mt>());
    l.set_pattern("%v");
    l.flush_on(spdlog::level::info);
    return l;
  }();
  return logger;
}

spdlog::logger& err_logger() {
  static spdlog::logger logger = [] {
    spdlog::logger l("err", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    l.set_pattern("%v");
    l.flush_on(spdlog::level::info);
    return l;
  }();
  return logger;
}

}  // namespace

void set_log_silent(bool silent) { silent_thread = silent; }

void log_line(std::string_view text) {
  if (!silent_thread) out_logger().log(spdlog::level::info, text);
}
void log_warning_line(std::string_view text) {
  if (!silent_thread) err_logger().log(spdlog::level::info, "warning: {}", text);
}
void log_error_line(std::string_view text) { err_logger().log(spdlog::level::info, "error: {}", text); }

}  // namespace megatoken
