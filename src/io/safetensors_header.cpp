#include "io/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_set>

#include "base/error.h"
#include "io/json.h"

namespace megatoken {
namespace {

struct StoredType {
  std::string_view name;
  int64 bits;
  std::optional<DType> dtype;
};

// Every type of the format (safetensors 0.6); sizes of tensors that are never read are checked as well.
constexpr std::array<StoredType, 21> kStoredTypes{{
    {"F32", 32, DType::f32}, {"BF16", 16, DType::bf16}, {"F16", 16, DType::f16}, {"F64", 64, DType::f64},
    {"I64", 64, DType::i64}, {"I32", 32, DType::i32},   {"U16", 16, DType::u16}, {"U8", 8, DType::u8},
    {"I8", 8, {}},           {"I16", 16, {}},           {"U32", 32, {}},         {"U64", 64, {}},
    {"BOOL", 8, {}},         {"C64", 64, {}},           {"F8_E4M3", 8, {}},      {"F8_E5M2", 8, {}},
    {"F8_E8M0", 8, {}},      {"F6_E2M3", 6, {}},        {"F6_E3M2", 6, {}},      {"F4", 4, {}},
    {"F8_E4M3FNUZ", 8, {}},
}};

const StoredType* find_type(std::string_view name) {
  for (const StoredType& type : kStoredTypes)
    if (type.name == name) return &type;
  return nullptr;
}

// Takes the parser's events and accepts exactly the header's grammar: anything else stops the parse at once with
// error() set, so neither depth nor size of a hostile header costs more than reading it.
class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  const std::string& error() const { return error_; }
  SafetensorsHeader take() { return std::move(header_); }

  bool start_object(std::size_t) override {
    switch (state_) {
      case State::start:
        return go(State::names);
      case State::value_of_name:
        if (name_ == "__metadata__") return go(State::metadata_keys);
        tensor_ = TensorInfo{};
        tensor_.name = name_;
        fields_ = 0;
        return go(State::field_keys);
      default:
        return unexpected("an object");
    }
  }

  bool end_object() override {
    switch (state_) {
      case State::names:
        return go(State::done);
      case State::metadata_keys:
        return go(State::names);
      case State::field_keys:
        if (fields_ != kAllFields)
          return fail("lacks {}", !(fields_ & kDType) ? "dtype" : !(fields_ & kShape) ? "shape" : "data_offsets");
        header_.tensors.push_back(std::move(tensor_));
        return go(State::names);
      default:
        return unexpected("the end of an object");
    }
  }

  bool key(std::string& text) override {
    switch (state_) {
      case State::names:
        name_ = text;
        if (!names_.insert(text).second) return fail("stands twice in the header");
        return go(State::value_of_name);
      case State::metadata_keys:
        metadata_key_ = text;
        if (header_.metadata.contains(text)) return fail("key \"{}\" stands twice", printable(text));
        return go(State::metadata_value);
      case State::field_keys: {
        const int field = text == "dtype" ? kDType : text == "shape" ? kShape : text == "data_offsets" ? kOffsets : 0;
        if (field == 0) return fail("has an unknown key \"{}\"", printable(text));
        if (fields_ & field) return fail("key \"{}\" stands twice", printable(text));
        fields_ |= field;
        return go(field == kDType ? State::dtype : field == kShape ? State::shape : State::offsets);
      }
      default:
        return unexpected("a key");
    }
  }

  bool start_array(std::size_t) override {
    if (state_ == State::shape) return go(State::shape_items);
    if (state_ == State::offsets) {
      offsets_.clear();
      return go(State::offset_items);
    }
    return unexpected("an array");
  }

  bool end_array() override {
    if (state_ == State::shape_items) return go(State::field_keys);
    if (state_ == State::offset_items) {
      if (offsets_.size() != 2) return fail("data_offsets has {} numbers, not 2", offsets_.size());
      tensor_.begin = offsets_[0];
      tensor_.end = offsets_[1];
      return go(State::field_keys);
    }
    return unexpected("the end of an array");
  }

  bool string(std::string& text) override {
    if (state_ == State::metadata_value) {
      header_.metadata.emplace(metadata_key_, text);
      return go(State::metadata_keys);
    }
    if (state_ == State::dtype) {
      tensor_.stored_dtype = text;
      return go(State::field_keys);
    }
    return unexpected("text");
  }

  bool number_unsigned(std::uint64_t number) override {
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<int64>::max());
    if (state_ != State::shape_items && state_ != State::offset_items) return unexpected("a number");
    if (number > kMax) return fail("number {} is too large", number);
    auto& items = state_ == State::shape_items ? tensor_.shape : offsets_;
    if (items.size() == kMaxItems) return fail("has more than {} dimensions", kMaxItems);
    items.push_back(static_cast<int64>(number));
    return true;
  }

  bool number_integer(std::int64_t number) override { return fail("has a negative number, {}", number); }
  bool number_float(double, const std::string& text) override {
    return fail("has {} where a whole number belongs", printable(text, 40));
  }
  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool binary(nlohmann::json::binary_t&) override { return unexpected("binary data"); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    error_ = "malformed JSON: " + json_error_text(error);
    return false;
  }

 private:
  enum class State {
    start,
    names,
    value_of_name,
    metadata_keys,
    metadata_value,
    field_keys,
    dtype,
    shape,
    shape_items,
    offsets,
    offset_items,
    done
  };
  static constexpr int kDType = 1, kShape = 2, kOffsets = 4, kAllFields = 7;
  static constexpr std::size_t kMaxItems = 64;

  bool go(State state) {
    state_ = state;
    return true;
  }
  template <typename... Args>
  bool fail(fmt::format_string<Args...> format, Args&&... args) {
    error_ = fmt::format("tensor \"{}\" ", printable(name_)) + fmt::format(format, std::forward<Args>(args)...);
    return false;
  }
  bool unexpected(std::string_view what) {
    error_ = name_.empty() ? fmt::format("{} where the table of tensors belongs", what)
                           : fmt::format("tensor \"{}\": {} in an unexpected place", printable(name_), what);
    return false;
  }

  State state_ = State::start;
  SafetensorsHeader header_;
  std::string error_;
  std::string name_, metadata_key_;
  std::unordered_set<std::string> names_;
  TensorInfo tensor_;
  int fields_ = 0;
  std::vector<int64> offsets_;
};

// Fills in dtype and elements; checks the tensor's own size.
void check_tensor(TensorInfo& tensor, const std::string& path) {
  const auto fault = [&](const std::string& text) {
    throw FileError("{}: tensor \"{}\" {}", path, printable(tensor.name), text);
  };
  const StoredType* type = find_type(tensor.stored_dtype);
  if (!type) fault(fmt::format("has the unknown dtype \"{}\"", printable(tensor.stored_dtype, 40)));
  tensor.dtype = type->dtype;
  int64 bits = 0;
  bool overflow = false;
  for (const int64 size : tensor.shape) overflow |= __builtin_mul_overflow(tensor.elements, size, &tensor.elements);
  overflow |= __builtin_mul_overflow(tensor.elements, type->bits, &bits);
  if (overflow) fault(fmt::format("has the impossible shape {}", tensor.shape_text()));
  if (bits % 8 != 0) fault(fmt::format("of {} {} doesn't end on a byte", tensor.stored_dtype, tensor.shape_text()));
  if (tensor.end < tensor.begin || tensor.end - tensor.begin != bits / 8)
    fault(fmt::format("of {} {} needs {} bytes, its data_offsets are [{}, {}]", tensor.stored_dtype,
                      tensor.shape_text(), bits / 8, tensor.begin, tensor.end));
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, int64 data_bytes, const std::string& path) {
  // The parser would take a NUL for the end of its input.
  if (json.find('\0') != json.npos) throw FileError("{}: header: malformed JSON: a NUL byte", path);
  HeaderEvents events;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &events))
    throw FileError("{}: header: {}", path, events.error().empty() ? "malformed JSON" : events.error());
  SafetensorsHeader header = events.take();
  for (TensorInfo& tensor : header.tensors) check_tensor(tensor, path);

  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  int64 reached = 0;
  for (const TensorInfo& tensor : header.tensors) {
    if (tensor.begin != reached)
      throw FileError("{}: tensor \"{}\" begins at byte {} of the data, {} the one before, which ends at {}", path,
                      printable(tensor.name), tensor.begin,
                      tensor.begin < reached ? "overlapping" : "leaving a gap after", reached);
    reached = tensor.end;
  }
  if (reached > data_bytes)
    throw FileError("{}: truncated: its tensors need {} bytes of data, the file has {}", path, reached, data_bytes);
  if (reached < data_bytes)
    throw FileError("{}: {} bytes are left over after the last tensor", path, data_bytes - reached);
  return header;
}

}  // namespace megatoken
