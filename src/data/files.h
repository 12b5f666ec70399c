// From a dataset's name to the files it means.
#pragma once

#include <string>
#include <vector>

namespace megatoken {

enum class FileKind { text, json };  // .txt; .jsonl and .json

struct DataFiles {
  FileKind kind = FileKind::text;
  std::vector<std::string> paths;    // in the order they are read
  std::vector<std::string> ignored;  // in the directory, but of no kind that is read
  std::vector<std::string> splits;   // those of the directory; empty where its files name none
};

// name: a file, a directory (searched through, names with a leading dot aside), a pattern (*, ?, [..] within a name and
// ** for any depth), or "text" / "json" with data_files (files and patterns). Directories and patterns are read in the
// order of their sorted paths.
//
// In a directory a file belongs to the split that its path names (directories before files), by datasets' words
// ("train", "training"; "validation", "valid", "val", "dev"; "test", "testing", "eval", "evaluation", set off by other
// characters than letters); where no file names one, all are "train". Everything else is "train".
//
// FileError naming what isn't there, kinds mixed in one dataset, kinds that aren't read (.parquet, .csv, compressed
// files), a split that isn't there, and a name that is only known to a hub.
DataFiles find_data_files(const std::string& name, const std::vector<std::string>& data_files,
                          const std::string& split);

}  // namespace megatoken
