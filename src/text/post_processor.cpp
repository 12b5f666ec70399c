#include "text/post_processor.h"

#include "text/json_checks.h"

namespace megatoken {
namespace {

constexpr const char* kKnown = "TemplateProcessing, ByteLevel, RobertaProcessing, BertProcessing, Sequence";

std::int32_t checked_id(const nlohmann::json& id, const Vocabulary& vocabulary, const AddedTokens& added,
                        const std::string& where) {
  if (!id.is_number_integer()) throw FileError("{}: a token id must be an integer, not {}", where, id.dump());
  if (id < 0 || id >= Vocabulary::kIdLimit ||
      (!vocabulary.contains(id.get<std::int32_t>()) && !added.find(id.get<std::int32_t>())))
    throw FileError("{}: no token has the id {}", where, id.dump());
  return id.get<std::int32_t>();
}

}  // namespace

PostProcessor PostProcessor::parse(const nlohmann::json& part, const Vocabulary& vocabulary, const AddedTokens& added,
                                   const std::string& where) {
  PostProcessor result;
  if (part.is_null()) return result;
  const std::string& kind = kind_of(part, where);
  if (kind == "ByteLevel") return result;
  if (kind == "Sequence") {
    const nlohmann::json& list = field(part, "processors", where);
    if (!list.is_array()) throw FileError("{}: \"processors\" must be an array", where);
    for (std::size_t i = 0; i < list.size(); ++i) {
      PostProcessor next = parse(list[i], vocabulary, added, fmt::format("{}.processors[{}]", where, i));
      if (next.items_.empty()) continue;
      if (!result.items_.empty())
        throw FileError("{}: more than one processor adds tokens; that is not supported", where);
      result = std::move(next);
    }
    return result;
  }
  if (kind == "RobertaProcessing" || kind == "BertProcessing") {
    for (const char* key : {"cls", "sep"}) {
      const nlohmann::json& pair = field(part, key, where);
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string())
        throw FileError("{}: \"{}\" must be [token, id]", where, key);
      result.items_.push_back({false, {checked_id(pair[1], vocabulary, added, where)}});
      if (result.items_.size() == 1) result.items_.push_back({true, {}});
    }
    return result;
  }
  if (kind != "TemplateProcessing") unknown_kind(kind, where, kKnown);
  const nlohmann::json& single = field(part, "single", where);
  const nlohmann::json& specials = field(part, "special_tokens", where);
  if (!single.is_array() || single.empty()) throw FileError("{}: \"single\" must be an array of pieces", where);
  if (!specials.is_object()) throw FileError("{}: \"special_tokens\" must be an object", where);
  for (const nlohmann::json& piece : single) {
    if (!piece.is_object() || piece.size() != 1 || !piece.begin()->is_object())
      throw FileError("{}: \"single\" has a piece that is neither Sequence nor SpecialToken", where);
    const std::string& id = string_field(*piece.begin(), "id", where);
    if (piece.begin().key() == "Sequence") {
      if (id != "A") throw FileError("{}: \"single\" has the sequence \"{}\"", where, printable(id));
      result.items_.push_back({true, {}});
    } else if (piece.begin().key() == "SpecialToken") {
      const nlohmann::json& token = field(specials, id.c_str(), where + ".special_tokens");
      if (!token.is_object() || !token.contains("ids") || !token["ids"].is_array())
        throw FileError("{}: special token \"{}\" must have \"ids\"", where, printable(id));
      result.items_.push_back({false, {}});
      for (const nlohmann::json& value : token["ids"])
        result.items_.back().ids.push_back(checked_id(value, vocabulary, added, where));
    } else {
      throw FileError("{}: \"single\" has a piece of the kind \"{}\"", where, printable(piece.begin().key()));
    }
  }
  return result;
}

void PostProcessor::apply(bool add_special_tokens, std::vector<std::int32_t>& ids) const {
  if (items_.empty()) return;
  std::vector<std::int32_t> before, behind;
  std::size_t texts = 0;
  for (const Item& item : items_) {
    if (item.text)
      ++texts;
    else if (add_special_tokens)
      (texts == 0 ? before : behind).insert((texts == 0 ? before : behind).end(), item.ids.begin(), item.ids.end());
  }
  if (texts == 1) {  // all known templates: no copy of the text where nothing stands before it
    if (!before.empty()) ids.insert(ids.begin(), before.begin(), before.end());
    ids.insert(ids.end(), behind.begin(), behind.end());
    return;
  }
  std::vector<std::int32_t> all;
  for (const Item& item : items_) {
    if (item.text) all.insert(all.end(), ids.begin(), ids.end());
    if (!item.text && add_special_tokens) all.insert(all.end(), item.ids.begin(), item.ids.end());
  }
  ids = std::move(all);
}

}  // namespace megatoken
