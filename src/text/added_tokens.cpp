#include "text/added_tokens.h"

#include <algorithm>
#include <cstring>

#include "text/json_checks.h"
#include "text/unicode.h"

namespace megatoken {
namespace {

bool has(char32_t c, std::uint32_t property) { return (unicode::properties(c) & property) != 0; }

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  std::size_t at = unicode::previous(text, text.size());
  return has(unicode::decode(text, at), unicode::kWord);
}

bool starts_with_word(std::string_view text) {
  if (text.empty()) return false;
  std::size_t at = 0;
  return has(unicode::decode(text, at), unicode::kWord);
}

// Start of the white space that text[0..end) ends with, not before `least`.
std::size_t space_before(std::string_view text, std::size_t end, std::size_t least) {
  while (end > least) {
    const std::size_t start = unicode::previous(text, end);
    std::size_t at = start;
    if (!has(unicode::decode(text, at), unicode::kSpace)) break;
    end = start;
  }
  return end;
}

std::size_t space_behind(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    std::size_t next = at;
    if (!has(unicode::decode(text, next), unicode::kSpace)) break;
    at = next;
  }
  return at;
}

}  // namespace

StringMatcher::StringMatcher(std::vector<std::pair<std::string, std::int32_t>> strings, const std::string& where) {
  if (strings.empty()) return;
  std::sort(strings.begin(), strings.end());
  pairs_.assign(65536 / 64, 0);
  const auto mark = [&](unsigned first, unsigned second) {
    const unsigned bit = first + 256 * second;
    pairs_[bit / 64] |= std::uint64_t{1} << bit % 64;
  };
  only_first_ = static_cast<unsigned char>(strings[0].first.c_str()[0]);
  // Breadth first: node -> the range of sorted strings that share its prefix.
  struct Range {
    std::size_t begin, end, depth;
  };
  std::vector<Range> ranges{{0, strings.size(), 0}};
  nodes_.emplace_back();
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    if (strings[begin].first.size() == depth) {
      if (depth == 0) throw FileError("{}: an added token is empty after normalization", where);
      if (begin + 1 < end && strings[begin + 1].first.size() == depth)
        throw FileError("{}: two added tokens are \"{}\"", where, printable(strings[begin].first));
      nodes_[node].value = strings[begin].second;
      ++begin;
    }
    nodes_[node].first_edge = static_cast<std::uint32_t>(edges_.size());
    for (std::size_t at = begin; at < end;) {
      const char byte = strings[at].first[depth];
      std::size_t last = at;
      while (last < end && strings[last].first[depth] == byte) ++last;
      edges_.push_back({static_cast<unsigned char>(byte), static_cast<std::uint32_t>(nodes_.size())});
      ++nodes_[node].edges;
      nodes_.emplace_back();
      ranges.push_back({at, last, depth + 1});
      at = last;
    }
  }
  for (const auto& [text, value] : strings) {
    const unsigned first = static_cast<unsigned char>(text[0]);
    if (static_cast<int>(first) != only_first_) only_first_ = -1;
    for (unsigned second = 0; second < 256; ++second)
      if (text.size() == 1 || second == static_cast<unsigned char>(text[1])) mark(first, second);
    longest_ = std::max(longest_, static_cast<std::int32_t>(text.size()));
  }
}

std::uint32_t StringMatcher::child(std::uint32_t node, unsigned char byte) const {
  const Edge* begin = edges_.data() + nodes_[node].first_edge;
  const Edge* end = begin + nodes_[node].edges;
  const Edge* at = end - begin <= 8
                       ? std::find_if(begin, end, [&](const Edge& e) { return e.byte == byte; })
                       : std::lower_bound(begin, end, byte, [](const Edge& e, unsigned char b) { return e.byte < b; });
  return at != end && at->byte == byte ? at->node : 0;
}

bool StringMatcher::find(std::string_view text, std::size_t from, std::size_t& begin, std::size_t& end,
                         std::int32_t& value) const {
  if (empty()) return false;
  for (std::size_t at = from; at < text.size(); ++at) {
    if (only_first_ >= 0) {
      const void* found = std::memchr(text.data() + at, only_first_, text.size() - at);
      if (!found) return false;
      at = static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
    }
    if (at + 1 < text.size()) {
      const unsigned bit = static_cast<unsigned char>(text[at]) + 256u * static_cast<unsigned char>(text[at + 1]);
      if (!(pairs_[bit / 64] >> bit % 64 & 1u)) continue;
    }
    std::uint32_t node = 0;
    bool found = false;
    for (std::size_t next = at; next < text.size();) {
      node = child(node, static_cast<unsigned char>(text[next++]));
      if (node == 0) break;
      if (nodes_[node].value >= 0) {
        found = true;
        begin = at;
        end = next;
        value = nodes_[node].value;
      }
    }
    if (found) return true;
  }
  return false;
}

void AddedTokens::read(const nlohmann::json& list, const Vocabulary& vocabulary, const std::string& where) {
  if (!list.is_array()) throw FileError("{}: \"added_tokens\" must be an array", where);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string here = fmt::format("{}: added_tokens[{}]", where, i);
    const nlohmann::json& item = list[i];
    if (!item.is_object()) throw FileError("{}: expected an object", here);
    AddedToken token;
    token.content = string_field(item, "content", here);
    token.single_word = bool_field(item, "single_word", here);
    token.lstrip = bool_field(item, "lstrip", here);
    token.rstrip = bool_field(item, "rstrip", here);
    token.normalized = bool_field(item, "normalized", here);
    token.special = bool_field(item, "special", here);
    const nlohmann::json& id = field(item, "id", here);
    if (!id.is_number_integer()) throw FileError("{}: \"id\" must be an integer", here);
    if (token.content.empty()) throw FileError("{}: \"content\" is empty", here);
    if (by_content_.contains(token.content))
      throw FileError("{}: token \"{}\" stands twice", here, printable(token.content));
    const std::string content = token.content;
    add(std::move(token), vocabulary);
    const std::int32_t given = find(content)->id;
    if (!(id == given))
      throw FileError(
          "{}: token \"{}\" has the id {} but gets {} (its id in model.vocab, or the one after the largest)", here,
          printable(content), id.dump(), given);
  }
}

void AddedTokens::add(AddedToken token, const Vocabulary& vocabulary) {
  token.id = vocabulary.find(token.content);
  if (token.id == kNoId) {
    // The package counts entries, not ids: with holes in the vocabulary's ids the next one may be taken.
    std::int32_t next = static_cast<std::int32_t>(vocabulary.size());
    for (const AddedToken& other : tokens_) next = std::max(next, other.id + 1);
    token.id = next;
  }
  by_content_.emplace(token.content, tokens_.size());
  by_id_.emplace(token.id, tokens_.size());
  tokens_.push_back(std::move(token));
}

void AddedTokens::build(const Normalizer& normalizer, const std::string& where) {
  std::vector<std::pair<std::string, std::int32_t>> raw, normalized;
  forms_.clear();
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    std::string storage;
    forms_.emplace_back(token.normalized ? normalizer.apply(token.content, storage) : std::string_view(token.content));
    (token.normalized ? normalized : raw).emplace_back(forms_.back(), static_cast<std::int32_t>(i));
  }
  raw_ = StringMatcher(std::move(raw), where);
  normalized_ = StringMatcher(std::move(normalized), where);
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto at = by_content_.find(std::string(content));
  return at == by_content_.end() ? nullptr : &tokens_[at->second];
}

const AddedToken* AddedTokens::find(std::int32_t id) const {
  const auto at = by_id_.find(id);
  return at == by_id_.end() ? nullptr : &tokens_[at->second];
}

const std::string& AddedTokens::decoded_form(const AddedToken& token) const {
  return forms_[static_cast<std::size_t>(&token - tokens_.data())];
}

void AddedTokens::split(std::string_view text, const StringMatcher& matcher, std::vector<Section>& out) const {
  std::size_t done = 0, begin = 0, end = 0;
  std::int32_t index = 0;
  for (std::size_t from = 0; matcher.find(text, from, begin, end, index);) {
    from = end;
    const AddedToken& token = tokens_[static_cast<std::size_t>(index)];
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) continue;
    if (token.lstrip) begin = std::max(space_before(text, begin, std::min(done, begin)), done);
    if (token.rstrip) end = space_behind(text, end);
    if (done < begin) out.push_back({text.substr(done, begin - done), kNoId});
    // White space that a token before took can leave nothing of this one; the package drops it then.
    if (begin < end) out.push_back({text.substr(begin, end - begin), token.id});
    done = end;
  }
  if (done != text.size()) out.push_back({text.substr(done), kNoId});
}

}  // namespace megatoken
