#include "data/reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace megatoken {
namespace {

// Bytes brought in and let go at a time.
constexpr int64 kWindow = int64{16} << 20;

bool blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Text files are read with universal newlines, as Python's open() and with it datasets' text loader does: "\r\n" and
// "\r" become "\n".
void normalise_newlines(std::string& text) {
  const auto first = text.find('\r');
  if (first == text.npos) return;
  std::size_t out = first;
  for (std::size_t in = first; in < text.size(); ++in) {
    const bool cr = text[in] == '\r';
    if (cr && in + 1 < text.size() && text[in + 1] == '\n') continue;
    text[out++] = cr ? '\n' : text[in];
  }
  text.resize(out);
}

}  // namespace

DatasetReader::DatasetReader(const DatasetSpec& spec)
    : spec_(spec), files_(find_data_files(spec.name, spec.data_files, spec.split)) {}

bool DatasetReader::open_next_file() {
  if (next_file_ == files_.paths.size()) return false;
  path_ = std::make_shared<const std::string>(files_.paths[next_file_++]);
  map_ = MappedFile::open(*path_);
  position_ = fetched_ = released_ = 0;
  line_ = 1;
  first_ = true;
  done_ = false;
  fetch_ahead();
  if (map_->text().starts_with("\xEF\xBB\xBF")) position_ = 3;
  if (map_->text().starts_with("\xFF\xFE") || map_->text().starts_with("\xFE\xFF"))
    throw FileError("{}: UTF-16 or UTF-32 text; convert it to UTF-8", printable(*path_, 4096));
  array_ = false;
  pending_.reset();
  if (files_.kind == FileKind::json) {
    while (position_ < map_->size() && blank(map_->text()[static_cast<std::size_t>(position_)])) {
      line_ += map_->text()[static_cast<std::size_t>(position_)] == '\n';
      ++position_;
      fetch_ahead();
    }
    array_ = position_ < map_->size() && map_->text()[static_cast<std::size_t>(position_)] == '[';
    position_ += array_;
  }
  return true;
}

// Bytes up to position_ + kWindow are there to be touched; pages well before position_ are let go.
void DatasetReader::fetch_ahead() {
  if (position_ - released_ >= 2 * kWindow) {
    map_->release(released_, kWindow);
    released_ += kWindow;
  }
  if (fetched_ - position_ >= kWindow / 2 || fetched_ == map_->size()) return;
  const int64 count = std::min(kWindow, map_->size() - fetched_);
  map_->fetch(fetched_, count);
  fetched_ += count;
}

bool DatasetReader::next(RawRow& row) {
  if (!next_unparsed(row)) return false;
  parse_row(spec_.text_field, row);
  return true;
}

bool DatasetReader::next_unparsed(RawRow& row) {
  while (true) {
    if (done_ && !open_next_file()) return false;
    row.file = path_;
    if (files_.kind == FileKind::text) {
      row.kind = RawRow::Kind::text;
      const bool found = spec_.unit == TextUnit::document    ? next_document(row)
                         : spec_.unit == TextUnit::paragraph ? next_paragraph(row)
                                                             : next_text_line(row);
      if (found) return true;
    } else if (array_ ? next_element(row) : next_line(row)) {
      return true;
    }
    map_.reset();
    done_ = true;
  }
}

DatasetReader::Line DatasetReader::take_line() {
  const int64 begin = position_;
  int64 at = begin;
  while (true) {
    fetch_ahead();
    // Look only at what has been fetched; a long line takes several rounds.
    const auto* found = static_cast<const std::byte*>(
        fetched_ > at ? std::memchr(map_->data() + at, '\n', static_cast<std::size_t>(fetched_ - at)) : nullptr);
    if (found) {
      position_ = found - map_->data() + 1;
      ++line_;
      return {map_->text().substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(position_ - 1 - begin)),
              true};
    }
    at = position_ = fetched_;
    if (fetched_ == map_->size())
      return {map_->text().substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(at - begin)), false};
  }
}

bool DatasetReader::next_line(RawRow& row) {
  while (position_ < map_->size()) {
    row.line = line_;
    const std::string_view line = take_line().text;
    if (std::all_of(line.begin(), line.end(), blank)) continue;
    row.kind = RawRow::Kind::json;
    row.text = line;
    return true;
  }
  return false;
}

// Cuts the next object out of a JSON list by its braces and quotes; parse_json_row judges what is inside.
bool DatasetReader::next_element(RawRow& row) {
  const auto fault = [&](std::string_view what) { throw FileError("{}:{}: {}", printable(*path_, 4096), line_, what); };
  const auto peek = [&]() -> char {
    while (true) {
      fetch_ahead();
      if (position_ >= map_->size()) fault("the list of rows has no end");
      const char c = map_->text()[static_cast<std::size_t>(position_)];
      if (!blank(c)) return c;
      line_ += c == '\n';
      ++position_;
    }
  };
  char c = peek();
  if (c == ']') {
    ++position_;
    for (; position_ < map_->size(); ++position_, fetch_ahead()) {
      if (!blank(map_->text()[static_cast<std::size_t>(position_)])) fault("something follows the list of rows");
    }
    return false;
  }
  if (!first_) {
    if (c != ',') fault("a comma is missing between two rows");
    ++position_;
    c = peek();
  }
  first_ = false;
  if (c != '{') fault("a row must be an object");

  row.line = line_;
  const int64 begin = position_;
  int64 depth = 0;
  bool quoted = false;
  while (true) {
    fetch_ahead();
    if (position_ >= map_->size()) fault(fmt::format("the row that begins in line {} has no end", row.line));
    const char at = map_->text()[static_cast<std::size_t>(position_++)];
    if (at == '\n') ++line_;
    if (quoted) {
      if (at == '\\') ++position_;  // whatever is escaped; a line break there is an error of the row
      if (at == '"') quoted = false;
    } else if (at == '"') {
      quoted = true;
    } else if (at == '{') {
      ++depth;
    } else if (at == '}' && --depth == 0) {
      break;
    }
  }
  row.kind = RawRow::Kind::json;
  row.text = map_->text().substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(position_ - begin));
  return true;
}

std::optional<DatasetReader::Line> DatasetReader::text_line() {
  if (!pending_) {
    if (position_ >= map_->size()) return std::nullopt;
    Line raw = take_line();
    // A "\r" at the end is half of "\r\n", or a line break of its own at the end of the file.
    if (raw.text.ends_with('\r')) {
      raw.text.remove_suffix(1);
      raw.ended = true;
    }
    pending_ = raw;
  }
  const auto cr = pending_->text.find('\r');
  if (cr == std::string_view::npos) return std::exchange(pending_, std::nullopt);
  const Line line{pending_->text.substr(0, cr), true};
  pending_->text.remove_prefix(cr + 1);
  ++line_;
  return line;
}

bool DatasetReader::next_text_line(RawRow& row) {
  row.line = line_;
  const auto line = text_line();
  if (!line) return false;
  row.text = line->text;
  return true;
}

// Pieces between "\n\n", found from left to right; empty ones are left out, and the last keeps its line break. All as
// datasets' text loader does.
bool DatasetReader::next_paragraph(RawRow& row) {
  row.text.clear();
  row.line = line_;
  bool open = false;  // the text so far ends in a line break that isn't written yet
  while (const auto line = text_line()) {
    if (open && line->text.empty() && line->ended) {
      open = false;
      if (!row.text.empty()) return true;
      row.line = line_;
      continue;
    }
    if (open) row.text += '\n';
    row.text += line->text;
    open = line->ended;
  }
  if (open) row.text += '\n';
  return !row.text.empty();
}

// One row whatever the file holds; an empty one is dropped and counted like every row without a target.
bool DatasetReader::next_document(RawRow& row) {
  if (!std::exchange(first_, false)) return false;
  row.line = 1;
  row.text.clear();
  row.text.reserve(static_cast<std::size_t>(map_->size()));
  while (position_ < map_->size()) {
    fetch_ahead();
    row.text +=
        map_->text().substr(static_cast<std::size_t>(position_), static_cast<std::size_t>(fetched_ - position_));
    position_ = fetched_;
  }
  normalise_newlines(row.text);
  return true;
}

}  // namespace megatoken
