#include "text/tokenizer_file.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "io/file.h"
#include "io/json.h"

namespace megatoken {
namespace {

using Json = nlohmann::json;

constexpr int64 kMaxFile = int64{1} << 31;  // bytes; offsets of the tables are 32 bits
constexpr std::size_t kMaxDepth = 64;

// Events of nlohmann's parser (which doesn't recurse), routed by the place in the file.
class Reader {
 public:
  explicit Reader(TokenizerFile& file) : file_(file) {}

  bool null() { return value("null", nullptr); }
  bool boolean(bool v) { return value("a boolean", v); }
  bool number_integer(Json::number_integer_t v) {
    if (place_ == Place::vocab) return add_token(v);
    return value("a number", v);
  }
  bool number_unsigned(Json::number_unsigned_t v) {
    if (place_ == Place::vocab)
      return add_token(v > static_cast<std::uint64_t>(INT64_MAX) ? INT64_MAX : static_cast<int64>(v));
    return value("a number", v);
  }
  bool number_float(Json::number_float_t v, const std::string&) { return value("a number", v); }
  bool binary(Json::binary_t&) { return false; }  // not in JSON text

  bool string(std::string& v) {
    if (place_ == Place::merges) return add_legacy_merge(v);
    if (place_ == Place::merge) {
      if (parts_ == 2) fail(merge_place() + " has more than two strings");
      (parts_++ == 0 ? left_ : right_).swap(v);
      return true;
    }
    return value("a string", std::move(v));
  }

  bool start_object(std::size_t) {
    if (place_ == Place::model && key_ == "vocab") return enter(Place::vocab, seen_vocab_);
    if (place_ == Place::vocab || place_ == Place::merges || place_ == Place::merge ||
        (place_ == Place::model && key_ == "merges"))
      unexpected("an object");
    return open(Json::object());
  }
  bool start_array(std::size_t) {
    if (place_ == Place::model && key_ == "merges") return enter(Place::merges, seen_merges_);
    if (place_ == Place::merges) {
      place_ = Place::merge;
      parts_ = 0;
      return true;
    }
    if (place_ == Place::vocab || place_ == Place::merge || (place_ == Place::model && key_ == "vocab"))
      unexpected("an array");
    return open(Json::array());
  }
  bool key(std::string& v) {
    key_.swap(v);
    if (place_ != Place::vocab && stack_.back()->contains(key_))
      fail(fmt::format("key \"{}\" stands twice", printable(key_)));
    return true;
  }
  bool end_object() {
    if (place_ == Place::vocab) {
      place_ = Place::model;
      return true;
    }
    return close();
  }
  bool end_array() {
    if (place_ == Place::merge) {
      if (parts_ != 2) fail(merge_place() + " must have two strings");
      file_.merges.add(left_, right_);
      place_ = Place::merges;
      return true;
    }
    if (place_ == Place::merges) {
      place_ = Place::model;
      return true;
    }
    return close();
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
    error_at_ = static_cast<int64>(position) - 1;
    error_ = json_error_text(error);
    return false;
  }

  int64 error_at() const { return error_at_; }
  const std::string& error() const { return error_; }
  bool seen_vocab() const { return seen_vocab_; }
  bool seen_merges() const { return seen_merges_; }

 private:
  enum class Place { other, model, vocab, merges, merge };

  [[noreturn]] void fail(const std::string& what) const { throw FileError("{}: {}", file_.path, what); }
  [[noreturn]] void unexpected(const char* kind) const {
    // Other models shape these parts their own way.
    if (file_.root.contains("model") && file_.root["model"].contains("type") && file_.root["model"]["type"] != "BPE")
      fail(fmt::format("model: the kind {} is not supported (supported: BPE)",
                       printable(file_.root["model"]["type"].dump(-1, ' ', false, Json::error_handler_t::replace))));
    switch (place_) {
      case Place::vocab:
        fail(fmt::format("model.vocab: token \"{}\" has {} for an id", printable(key_), kind));
      case Place::merges:
      case Place::merge:
        fail(merge_place() + " is or holds " + kind + ", expected \"a b\" or [\"a\", \"b\"]");
      default:
        fail(fmt::format("model.{} is {}", printable(key_), kind));
    }
  }
  std::string merge_place() const { return fmt::format("model.merges[{}]", file_.merges.size()); }

  bool enter(Place place, bool& seen) {
    *insert(nullptr) = nullptr;  // so that a second one is found
    seen = true;
    place_ = place;
    return true;
  }
  bool add_token(int64 id) {
    file_.vocabulary.add(key_, id);
    return true;
  }
  bool add_legacy_merge(std::string_view pair) {
    if (pair.starts_with("#version")) return true;
    const std::size_t space = pair.find(' ');
    if (space == pair.npos || pair.find(' ', space + 1) != pair.npos)
      fail(merge_place() + ": \"" + printable(pair) + "\" is not two tokens with one space between");
    file_.merges.add(pair.substr(0, space), pair.substr(space + 1));
    return true;
  }

  template <typename T>
  bool value(const char* kind, T&& v) {
    if (place_ == Place::vocab || place_ == Place::merges || place_ == Place::merge) unexpected(kind);
    if (place_ == Place::model && (key_ == "vocab" || key_ == "merges")) unexpected(kind);
    insert(std::forward<T>(v));
    return true;
  }
  Json* insert(Json v) {
    if (stack_.empty()) return &(file_.root = std::move(v));
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(v));
      return &parent.back();
    }
    return &(parent[key_] = std::move(v));
  }
  bool open(Json container) {
    if (stack_.size() >= kMaxDepth) fail(fmt::format("nested deeper than {} levels", kMaxDepth));
    const bool model = stack_.size() == 1 && stack_[0]->is_object() && key_ == "model" && container.is_object();
    stack_.push_back(insert(std::move(container)));
    if (model) place_ = Place::model;
    if (place_ == Place::model && !model) place_ = Place::other;
    return true;
  }
  bool close() {
    stack_.pop_back();
    // Back in the model after one of its small objects (there is none in a valid file), or out of it.
    place_ = stack_.size() == 2 && stack_[0]->contains("model") && stack_[1] == &(*stack_[0])["model"] ? Place::model
                                                                                                       : Place::other;
    return true;
  }

  TokenizerFile& file_;
  Place place_ = Place::other;
  std::vector<Json*> stack_;
  std::string key_, left_, right_, error_;
  int parts_ = 0;
  int64 error_at_ = -1;
  bool seen_vocab_ = false, seen_merges_ = false;
};

// The parser would take a NUL for the end of its input and pass over what follows.
void refuse_nul(std::string_view text, int64 from, const std::string& path) {
  const std::size_t nul = text.find('\0', static_cast<std::size_t>(from));
  if (nul != text.npos)
    throw FileError("{}: line {}: a NUL byte, which JSON doesn't allow", printable(path, 4096),
                    line_of(text, static_cast<int64>(nul)));
}

// The file's bytes for the parser, a window of the map in memory at a time: tokenizer.json may be 30 MB and more.
class MapCursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  MapCursor(const MappedFile& map, int64 at) : map_(&map), at_(map.text().data() + at), window_end_(at_) { fill(); }
  reference operator*() const { return *at_; }
  MapCursor& operator++() {
    if (++at_ == window_end_) fill();
    return *this;
  }
  bool operator==(const MapCursor& other) const { return at_ == other.at_; }
  bool operator!=(const MapCursor& other) const { return at_ != other.at_; }

 private:
  static constexpr int64 kWindow = int64{1} << 20;
  void fill() {
    const int64 done = at_ - map_->text().data(), next = std::min(kWindow, map_->size() - done);
    if (next <= 0) return;
    map_->release(std::max<int64>(done - kWindow, 0), std::min(done, kWindow));
    map_->fetch(done, next);
    window_end_ = at_ + next;
    refuse_nul(map_->text().substr(0, static_cast<std::size_t>(done + next)), done, map_->path());
  }

  const MappedFile* map_;
  const char* at_;
  const char* window_end_;
};

// Parses [begin, end); line() gives the line of a byte offset for an error's message.
template <typename Iterator, typename Line>
TokenizerFile parse(Iterator begin, Iterator end, const std::string& path, Line line) {
  TokenizerFile file;
  file.path = path;
  Reader reader(file);
  if (!Json::sax_parse(begin, end, &reader))
    throw FileError("{}: line {}: {}", path, line(reader.error_at()), reader.error());
  if (!file.root.is_object() || !file.root.contains("model") || !file.root["model"].is_object())
    throw FileError("{}: expected an object with an object \"model\"", path);
  if (!reader.seen_vocab()) throw FileError("{}: \"model.vocab\" is missing", path);
  file.vocabulary.build(path + ": model.vocab");
  if (!reader.seen_merges()) throw FileError("{}: \"model.merges\" is missing", path);
  return file;
}

// The path, fit for messages; refuses files whose offsets 32 bits don't hold.
std::string checked_path(const std::string& path, int64 size) {
  if (size >= kMaxFile) throw FileError("{}: larger than {} bytes", printable(path, 4096), kMaxFile);
  return printable(path, 4096);
}

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

void MergeList::add(std::string_view left, std::string_view right) {
  for (const std::string_view part : {left, right}) {
    text_ += part;
    ends_.push_back(static_cast<std::uint32_t>(text_.size()));
  }
}

TokenizerFile parse_tokenizer_file(std::string_view text, const std::string& path) {
  const std::string name = checked_path(path, static_cast<int64>(text.size()));
  refuse_nul(text, 0, path);
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return parse(text.begin(), text.end(), name, [&](int64 at) { return line_of(text, at); });
}

TokenizerFile read_tokenizer_file(const std::string& path) {
  const MappedFile map = MappedFile::open(path);
  const std::string name = checked_path(path, map.size());
  map.fetch(0, std::min<int64>(map.size(), 3));
  const int64 start = map.text().starts_with(kByteOrderMark) ? 3 : 0;
  return parse(MapCursor(map, start), MapCursor(map, map.size()), name, [&](int64 at) {
    map.fetch(0, map.size());
    return line_of(map.text(), start + at);
  });
}

}  // namespace megatoken
