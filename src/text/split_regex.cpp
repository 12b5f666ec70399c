#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/split_regex.h"

#include <pcre2.h>

#include "base/error.h"
#include "io/file.h"
#include "text/unicode.h"

namespace megatoken {
namespace {

constexpr std::size_t kJitStackStart = 64 << 10, kJitStackMost = 64 << 20;  // bytes
constexpr std::uint32_t kHeapLimit = 4u << 20;                              // KiB, of the interpreter

std::string pcre2_text(int code) {
  char buffer[160];
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(buffer), sizeof buffer);
  return buffer;
}

// Stack and limits of one thread's matching.
struct MatchState {
  MatchState()
      : context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr)),
        data(pcre2_match_data_create(1, nullptr)) {
    if (!context || !stack || !data) throw std::bad_alloc();
    pcre2_jit_stack_assign(context, nullptr, stack);
    pcre2_set_match_limit(context, 0xFFFFFFFFu);
    pcre2_set_depth_limit(context, 0xFFFFFFFFu);
    pcre2_set_heap_limit(context, kHeapLimit);
  }
  ~MatchState() {
    pcre2_match_data_free(data);
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
  }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
  pcre2_match_data* data;
};

}  // namespace

SplitRegex::SplitRegex(std::string_view pattern, const std::string& where) : where_(where) {
  const std::string translated = translate_regex(pattern, where);
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK, &error, &at, context);
  pcre2_compile_context_free(context);
  if (!code) throw FileError("{}: pattern \"{}\": {}", where, printable(pattern), pcre2_text(error));
  code_ = std::shared_ptr<const void>(
      code, [](const void* p) { pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(p))); });
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where the JIT is missing, pcre2_match interprets
}

void SplitRegex::for_each(std::string_view text, FunctionRef<void(std::size_t, std::size_t)> match) const {
  thread_local MatchState state;
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  std::size_t at = 0, last_end = std::string_view::npos;
  while (at <= text.size()) {
    int rc = pcre2_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, state.data, state.context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT || rc == PCRE2_ERROR_MATCHLIMIT)
      rc = pcre2_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, state.data, state.context);
    if (rc == PCRE2_ERROR_NOMATCH) return;
    if (rc < 0) throw FileError("{}: the pattern can't be matched on this text: {}", where_, pcre2_text(rc));
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(state.data);
    const std::size_t begin = range[0], end = range[1];
    if (begin == end && end == last_end) {  // empty right behind a match: one character on
      if (at >= text.size()) return;
      unicode::decode(text, at);
      continue;
    }
    match(begin, end);
    at = last_end = end;
  }
}

}  // namespace megatoken
