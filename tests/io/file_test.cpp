#include "io/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "io/temp_dir.h"

namespace megatoken {
namespace {

using test::message_of;
using test::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::string> entries(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) names.push_back(entry.path().filename());
  return names;
}

TEST(File, MapsWhatWasWritten) {
  const TempDir dir;
  write_file_atomic(dir.file("a"), "hello");
  const MappedFile file = MappedFile::open(dir.file("a"));
  EXPECT_EQ(file.text(), "hello");
  file.fetch(1, 4);
  file.release(0, 5);
  EXPECT_EQ(file.text(), "hello");
  EXPECT_EQ(entries(dir.path()), std::vector<std::string>{"a"});
}

TEST(File, MapsAnEmptyFile) {
  const TempDir dir;
  dir.write("empty", "");
  const MappedFile file = MappedFile::open(dir.file("empty"));
  EXPECT_EQ(file.size(), 0);
  EXPECT_EQ(file.text(), "");
}

TEST(File, NamesWhatCannotBeRead) {
  const TempDir dir;
  EXPECT_THAT(message_of<FileError>([&] { MappedFile::open(dir.file("none")); }),
              AllOf(HasSubstr("/none"), HasSubstr("No such file")));
  EXPECT_THAT(message_of<FileError>([&] { MappedFile::open(dir.path()); }), HasSubstr("directory"));
  EXPECT_THAT(message_of<FileError>([&] { read_text_file(dir.path()); }), HasSubstr("directory"));
  ASSERT_EQ(::mkfifo(dir.file("pipe").c_str(), 0600), 0);
  EXPECT_THAT(message_of<FileError>([&] { MappedFile::open(dir.file("pipe")); }), HasSubstr("not a regular file"));
}

TEST(File, AFileCutShortWhileMappedIsAnErrorNotASignal) {
  const TempDir dir;
  dir.write("shrinks", std::string(1 << 20, 'x'));
  const MappedFile file = MappedFile::open(dir.file("shrinks"));
  std::filesystem::resize_file(dir.file("shrinks"), 4096);
  EXPECT_THAT(message_of<FileError>([&] { file.fetch(1 << 19, 4096); }),
              AllOf(HasSubstr("shrinks"), HasSubstr("cut short")));
}

TEST(File, TextReadsAreBounded) {
  const TempDir dir;
  dir.write("text", std::string(100, 'x'));
  EXPECT_EQ(read_text_file(dir.file("text"), 100).size(), 100u);
  EXPECT_THAT(message_of<FileError>([&] { read_text_file(dir.file("text"), 99); }), HasSubstr("longer than 99"));
  EXPECT_THAT(message_of<FileError>([&] { read_text_file("/dev/zero", 1 << 20); }), HasSubstr("/dev/zero"));
}

TEST(File, AtomicWriteReplacesTheWholeContent) {
  const TempDir dir;
  write_file_atomic(dir.file("a"), std::string(5000, 'x'));
  write_file_atomic(dir.file("a"), "short");
  EXPECT_EQ(TempDir::read(dir.file("a")), "short");
}

TEST(File, AtomicWriteRefusesDevicesAndMissingDirectories) {
  const TempDir dir;
  EXPECT_THAT(message_of<TrainError>([&] { write_file_atomic("/dev/null", "x"); }), HasSubstr("not a regular file"));
  EXPECT_THAT(message_of<TrainError>([&] { write_file_atomic(dir.file("no/where"), "x"); }),
              AllOf(HasSubstr("no/where"), HasSubstr("No such file")));
}

// A process whose files may have 64 KiB meets what a full disk meets: a write that fails half-way.
TEST(File, AFullDiskLeavesTheOldFile) {
  const TempDir dir;
  dir.write("a", "old");
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 16, 1 << 16};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string message =
        message_of<TrainError>([&] { write_file_atomic(dir.file("a"), std::string(1 << 20, 'n')); });
    const bool named = message.find(dir.file("a") + ": File too large") != std::string::npos;
    ::_exit(named ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(TempDir::read(dir.file("a")), "old");
  EXPECT_EQ(entries(dir.path()), std::vector<std::string>{"a"});
}

TEST(File, CheckWritableMakesTheDirectoryOrNamesTheKey) {
  const TempDir dir;
  check_writable(dir.file("new/deep"));
  EXPECT_TRUE(std::filesystem::is_directory(dir.file("new/deep")));
  EXPECT_TRUE(entries(dir.file("new/deep")).empty());
  dir.write("plain", "x");
  EXPECT_THAT(message_of<ConfigError>([&] { check_writable(dir.file("plain")); }),
              AllOf(HasSubstr("output_dir"), HasSubstr("plain")));
  EXPECT_THAT(message_of<ConfigError>([&] { check_writable("/proc/none"); }), HasSubstr("/proc/none"));
}

TEST(File, PrintableTextIsOneLine) {
  EXPECT_EQ(printable("a\nb\x01"), "a\\x0ab\\x01");
  EXPECT_EQ(printable("\xFF\xC3(\xED\xA0\x80\xE2\x82\xACx\xF0\x9F\x98\x80\xC0\x80\xF4\x90\x80\x80\xE2\x82"),
            "\\xff\\xc3(\\xed\\xa0\\x80\xE2\x82\xACx\xF0\x9F\x98\x80\\xc0\\x80\\xf4\\x90\\x80\\x80\\xe2\\x82");
  EXPECT_EQ(printable("\xC3\xA9t\xC3\xA9", 4), "\xC3\xA9t...");
  EXPECT_EQ(printable(std::string(500, 'x'), 10), std::string(10, 'x') + "...");
}

}  // namespace
}  // namespace megatoken
