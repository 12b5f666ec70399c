#include "text/unicode_forms.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/error.h"
#include "text/unicode.h"

namespace megatoken {
namespace {

// utf8proc does the decomposition and composition, but only of clusters that the package's own (older) Unicode version
// would touch: a character that version didn't know is left alone and separates what stands around it.
class FormStep final : public NormalizerStep {
 public:
  explicit FormStep(UnicodeForm form)
      : compose_(form == UnicodeForm::nfc || form == UnicodeForm::nfkc),
        options_(static_cast<utf8proc_option_t>(
            UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
            (form == UnicodeForm::nfkc || form == UnicodeForm::nfkd ? UTF8PROC_COMPAT : 0))),
        touched_(form == UnicodeForm::nfc    ? unicode::kNfc
                 : form == UnicodeForm::nfd  ? unicode::kNfd
                 : form == UnicodeForm::nfkc ? unicode::kNfkc
                                             : unicode::kNfkd) {}

  bool apply(std::string_view text, std::string& out) const override {
    const unicode::Table& table = unicode::Table::get();
    std::size_t copied = 0, before = 0;  // text[..copied) is in out; the character before `at` starts at `before`
    bool before_composes = false;
    std::vector<utf8proc_int32_t> cluster;
    for (std::size_t at = 0; at < text.size();) {
      if (static_cast<unsigned char>(text[at]) < 0x80) {  // no form touches ASCII; all of it may compose
        at = unicode::skip_ascii(text, at);
        before = at - 1;
        before_composes = true;
        continue;
      }
      const std::size_t start = at;
      const char32_t c = unicode::decode(text, at);
      const std::uint32_t properties = table[c];
      if (!(properties & touched_)) {
        before = start;
        before_composes = (properties & unicode::kComposes) != 0;
        continue;
      }
      if (copied == 0 && out.empty()) out.reserve(text.size() + text.size() / 8);
      const std::size_t from = compose_ && before_composes ? before : start;
      out += text.substr(copied, from - copied);
      at = from;
      cluster.clear();
      while (at < text.size()) {
        std::size_t next = at;
        const char32_t member = unicode::decode(text, next);
        if (at != from && !(table[member] & touched_)) break;
        decompose(member, cluster);
        at = next;
      }
      append_cluster(cluster, out);
      copied = at;
      before_composes = false;
    }
    if (copied == 0) return false;
    out += text.substr(copied);
    return true;
  }

 private:
  void decompose(char32_t c, std::vector<utf8proc_int32_t>& cluster) const {
    utf8proc_int32_t parts[32];
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, std::size(parts), options_, &boundary);
    check(count >= 1 && count <= static_cast<utf8proc_ssize_t>(std::size(parts)), "utf8proc decomposes U+{:04X} to {}",
          static_cast<std::uint32_t>(c), count);
    cluster.insert(cluster.end(), parts, parts + count);
  }

  void append_cluster(std::vector<utf8proc_int32_t>& cluster, std::string& out) const {
    // Canonical order: each run of non-starters by combining class, equals in place. (utf8proc_decompose's own ordering
    // takes quadratic time on long runs.)
    const auto order = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
    for (auto at = cluster.begin(); at != cluster.end();) {
      if (order(*at) == 0) {
        ++at;
        continue;
      }
      const auto end = std::find_if(at, cluster.end(), [&](utf8proc_int32_t c) { return order(c) == 0; });
      std::stable_sort(at, end, [&](utf8proc_int32_t a, utf8proc_int32_t b) { return order(a) < order(b); });
      at = end;
    }
    utf8proc_ssize_t count = static_cast<utf8proc_ssize_t>(cluster.size());
    if (compose_)
      count = utf8proc_normalize_utf32(cluster.data(), count,
                                       static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    check(count >= 0, "utf8proc: {}", utf8proc_errmsg(count));
    for (utf8proc_ssize_t i = 0; i < count; ++i)
      unicode::append_utf8(static_cast<char32_t>(cluster[static_cast<std::size_t>(i)]), out);
  }

  bool compose_;
  utf8proc_option_t options_;
  std::uint32_t touched_;
};

}  // namespace

std::shared_ptr<const NormalizerStep> make_unicode_form(UnicodeForm form) { return std::make_shared<FormStep>(form); }

}  // namespace megatoken
