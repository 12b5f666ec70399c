#include <fmt/format.h>

#include <cstdio>
#include <iterator>

#include "base/error.h"
#include "base/log.h"
#include "cli/cli.h"
#include "io/file.h"
#include "spec/machine.h"
#include "text/tokenizer.h"

namespace megatoken {
namespace {

constexpr std::size_t kShownTokens = 12;

void write_out(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw TrainError("standard output: could not be written");
}

// {"count": N, "ids": [...]}; written by hand because the list may have hundreds of millions of numbers.
void write_json(const std::vector<std::int32_t>& ids) {
  std::string text = fmt::format("{{\"count\": {}, \"ids\": [", ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) text += ", ";
    fmt::format_to(std::back_inserter(text), "{}", ids[i]);
    if (text.size() > (1u << 20)) {
      write_out(text);
      text.clear();
    }
  }
  write_out(text + "]}\n");
}

}  // namespace

int run_tokenize(const Invocation& invocation) {
  const Tokenizer tokenizer = Tokenizer::load(invocation.tokenizer);
  const MappedFile file = MappedFile::open(invocation.input);
  file.fetch(0, file.size());
  EncodeStats stats;
  const EncodeOptions options{.add_special_tokens = false, .threads = static_cast<int>(detect_machine().cores)};
  const std::vector<std::int32_t> ids = tokenizer.encode(file.text(), options, &stats);
  if (invocation.json) {
    write_json(ids);
  } else {
    std::string first;
    for (std::size_t i = 0; i < ids.size() && i < kShownTokens; ++i)
      first += fmt::format(" {} \"{}\"", ids[i], printable(tokenizer.decode({&ids[i], 1}), 40));
    log_info("{}: {} tokens from {} bytes", invocation.input, ids.size(), file.size());
    if (!ids.empty()) log_info("first:{}{}", first, ids.size() > kShownTokens ? " ..." : "");
  }
  if (stats.invalid_utf8 > 0)
    log_warning("{}: {} invalid UTF-8 sequences were replaced by U+FFFD", invocation.input, stats.invalid_utf8);
  return 0;
}

}  // namespace megatoken
