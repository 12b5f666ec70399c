// Reads the rows of a dataset one after the other (docs/data.md says what a row of each kind of file is).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "data/files.h"
#include "data/row.h"
#include "io/file.h"

namespace megatoken {

enum class TextUnit { line, paragraph, document };  // sample_by

struct DatasetSpec {
  std::string name;  // dataset_name or eval_dataset: see find_data_files
  std::vector<std::string> data_files;
  std::string split = "train";
  TextUnit unit = TextUnit::document;  // of .txt files
  std::string text_field = "text";
};

class DatasetReader {
 public:
  explicit DatasetReader(const DatasetSpec& spec);  // FileError, ConfigError as find_data_files

  const DataFiles& files() const { return files_; }
  // The next row into `row`; false after the last. FileError naming file and line. Needs memory for one row (.txt by
  // document: one file); pages of the file that have been read are released.
  bool next(RawRow& row);
  // The same with JSON rows as they stand (RawRow::Kind::json): parse_row, the greater part of the work, can be done by
  // several threads.
  bool next_unparsed(RawRow& row);

 private:
  bool open_next_file();
  bool next_document(RawRow& row);
  bool next_paragraph(RawRow& row);
  bool next_text_line(RawRow& row);
  bool next_line(RawRow& row);
  bool next_element(RawRow& row);
  struct Line {
    std::string_view text;  // without its end
    bool ended;             // by a line break, not by the end of the file
  };
  Line take_line();                 // up to "\n"; moves position_ and line_
  std::optional<Line> text_line();  // up to "\n", "\r\n" or "\r"
  void fetch_ahead();

  DatasetSpec spec_;
  DataFiles files_;
  std::size_t next_file_ = 0;
  std::optional<MappedFile> map_;
  std::shared_ptr<const std::string> path_;
  int64 position_ = 0, line_ = 1;     // of the next byte
  int64 fetched_ = 0, released_ = 0;  // bytes of the map
  std::optional<Line> pending_;       // text_line: what a lone "\r" cut off
  bool array_ = false;                // the file is one JSON list of rows
  bool first_ = true;                 // nothing has been taken from the file yet
  bool done_ = true;                  // with the file
};

}  // namespace megatoken
