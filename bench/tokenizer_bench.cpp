// Speed and memory of the tokenizer, and a server for comparing its ids with another program's.
//
//   tokenizer_bench                                  the test tokenizers on made-up text
//   tokenizer_bench time TOKENIZER FILE [ROUNDS]     the file as one text, one thread and all of them
//   tokenizer_bench documents TOKENIZER FILE BYTES   the file cut into documents of about BYTES, 1 and 2 threads in
//   turn tokenizer_bench serve TOKENIZER                  stdin: frames of (u8 special tokens?, u32 size, bytes),
//   little
//                                                    endian; stdout: frames of (u32 count, i32 ids)
// tools/golden_text_compare.py drives the last two.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include "base/error.h"
#include "io/file.h"
#include "text/tokenizer.h"

namespace {

using namespace megatoken;

struct Seconds {
  double wall, processor;  // processor: of all threads together
};

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

template <typename Work>
Seconds timed(Work work) {
  const auto wall = std::chrono::steady_clock::now();
  const double processor = processor_seconds();
  work();
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - wall).count(),
          processor_seconds() - processor};
}

// Peak resident memory of the process, bytes.
double peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return 1024.0 * std::stod(line.substr(6));
  return 0;
}

void time_one_text(const Tokenizer& tokenizer, const std::string& text, int rounds) {
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  std::size_t ids = 0;
  for (const int threads : {1, static_cast<int>(std::thread::hardware_concurrency())}) {
    Seconds first{}, best{1e9, 1e9};
    for (int i = 0; i < rounds; ++i) {
      const Seconds s =
          timed([&] { ids = tokenizer.encode(text, {.add_special_tokens = false, .threads = threads}).size(); });
      if (i == 0) first = s;
      best = {std::min(best.wall, s.wall), std::min(best.processor, s.processor)};
    }
    fmt::print(
        "threads {}: {} ids; first {:.4f} s ({:.1f} MB/s), best {:.4f} s ({:.1f} MB/s); processor time first {:.4f} s, "
        "best {:.4f} s; peak memory {:.2f} x the text\n",
        threads, ids, first.wall, megabytes / first.wall, best.wall, megabytes / best.wall, first.processor,
        best.processor, peak_bytes() / static_cast<double>(text.size()));
  }
}

// The file cut into documents of about `bytes` bytes (at line ends where there are any), taken again and again until
// they hold kDocumentBytes, so that a round takes long enough to be measured.
void time_documents(const Tokenizer& tokenizer, const std::string& text, std::size_t bytes) {
  constexpr std::size_t kDocumentBytes = 64 << 20;
  constexpr int kRounds = 5;
  std::vector<std::string_view> documents;
  std::size_t total = 0;
  while (total < kDocumentBytes && !text.empty())
    for (std::size_t at = 0; at < text.size() && total < kDocumentBytes;) {
      const std::size_t line_end = text.find('\n', at + bytes - 1);
      const std::size_t end =
          std::min({text.size(), at + 2 * bytes, line_end == text.npos ? text.size() : line_end + 1});
      documents.push_back(std::string_view(text).substr(at, end - at));
      total += end - at;
      at = end;
    }
  Seconds best[2] = {{1e9, 1e9}, {1e9, 1e9}};
  for (int round = 0; round < kRounds; ++round)
    for (const int threads : {1, 2}) {
      const Seconds s = timed([&] { tokenizer.encode_batch(documents, {.threads = threads}); });
      Seconds& b = best[threads - 1];
      b = {std::min(b.wall, s.wall), std::min(b.processor, s.processor)};
    }
  fmt::print(
      "{} documents, {:.1f} MB: 1 thread {:.3f} s, 2 threads {:.3f} s: {:.2f} x (processor time {:.3f} and {:.3f} s); "
      "peak memory {:.2f} x the text\n",
      documents.size(), static_cast<double>(total) / 1e6, best[0].wall, best[1].wall, best[0].wall / best[1].wall,
      best[0].processor, best[1].processor, peak_bytes() / static_cast<double>(total));
}

void serve(const Tokenizer& tokenizer) {
  std::string text;
  unsigned char special = 0;
  std::uint32_t size = 0;
  while (std::fread(&special, 1, 1, stdin) == 1 && std::fread(&size, sizeof size, 1, stdin) == 1) {
    text.resize(size);
    if (std::fread(text.data(), 1, size, stdin) != size) return;
    const auto ids = tokenizer.encode(text, {.add_special_tokens = special != 0});
    const auto count = static_cast<std::uint32_t>(ids.size());
    std::fwrite(&count, sizeof count, 1, stdout);
    if (count > 0) std::fwrite(ids.data(), sizeof(std::int32_t), count, stdout);
    std::fflush(stdout);
  }
}

// Words of a small vocabulary in random order, 8 MB.
std::string made_up_text() {
  std::mt19937 random(1);
  std::vector<std::string> words(5000);
  for (std::string& word : words)
    for (unsigned n = 1 + random() % 9; n > 0; --n) word += static_cast<char>('a' + random() % 26);
  std::string text;
  while (text.size() < 8000000) {
    text += words[random() % (random() % words.size() + 1)];
    text += random() % 12 ? " " : ".\n";
  }
  return text;
}

int run(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "";
  if (count == 1) {
    const std::string text = made_up_text();
    for (const char* family : {"qwen", "llama3", "o200k", "gemma"}) {
      fmt::print("{}\n", family);
      time_one_text(Tokenizer::load(std::string(MEGATOKEN_TEST_DATA "/data/tokenizers/") + family), text, 5);
    }
    return 0;
  }
  if (count < (mode == "serve" ? 3 : mode == "documents" ? 5 : 4)) {
    fmt::print(
        stderr,
        "usage: tokenizer_bench time TOKENIZER FILE [ROUNDS] | documents TOKENIZER FILE BYTES | serve TOKENIZER\n");
    return 2;
  }
  const Tokenizer tokenizer = Tokenizer::load(arguments[2]);
  if (mode == "serve") {
    serve(tokenizer);
    return 0;
  }
  const std::string text = read_text_file(arguments[3]);
  if (mode == "documents")
    time_documents(tokenizer, text, std::stoul(arguments[4]));
  else
    time_one_text(tokenizer, text, count > 4 ? std::stoi(arguments[4]) : 5);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run(count, arguments);
  } catch (const megatoken::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
