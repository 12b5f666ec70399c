"""Writes src/text/unicode_ranges.inc: what the `tokenizers` package does with every code point.

The package mixes three Unicode versions (Oniguruma's for split patterns, the Rust standard library's and its regex
crate's for white space, digits and words, an older one for normalization), and none of them is PCRE2's or utf8proc's.
So each property is asked of the package itself, for all 1,112,064 scalar values, and kept as ranges.

    python tools/golden_text_unicode.py          # needs tokenizers (0.23.3 made the committed file)
"""
import os
import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

OUT = os.path.join(os.path.dirname(__file__), "..", "src", "text", "unicode_ranges.inc")
SCALARS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
ALL = "".join(map(chr, SCALARS))
CATEGORIES = ("Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cs").split()
SCRIPTS = "Han Hiragana Katakana Hangul".split()


def matched(pattern):
    kept = pre_tokenizers.Split(Regex(pattern), "removed").pre_tokenize_str(ALL)
    return set(SCALARS) - {ord(c) for piece, _ in kept for c in piece}


def removed_by(pre_tokenizer):
    return set(SCALARS) - {ord(c) for piece, _ in pre_tokenizer.pre_tokenize_str(ALL) for c in piece}


category = {}
for index, name in enumerate(CATEGORIES):
    if name in ("Cn", "Cs"):
        continue
    for c in matched(r"\p{%s}" % name):
        assert c not in category, hex(c)
        category[c] = index

flags = {}
flags["space"] = matched(r"\s")
assert flags["space"] == removed_by(pre_tokenizers.WhitespaceSplit())
flags["onig_word"] = matched(r"\w")
# Words of the added tokens' single_word rule: in Whitespace's `\w+|[^\w\s]+` a word character joins its neighbour 'a'.
flags["word"] = {c for c in SCALARS if len(pre_tokenizers.Whitespace().pre_tokenize_str("a" + chr(c))) == 1} - flags["space"]
flags["numeric"] = {ord(p) for p, _ in pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str(
    "".join(ch + "\x00" for ch in ALL)) if len(p) == 1} - {0}
flags["punctuation"] = removed_by(pre_tokenizers.Punctuation("removed"))
flags["accent"] = {c for c in SCALARS if normalizers.StripAccents().normalize_str(chr(c)) == ""}

nfc, nfd = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
nfkc, nfkd = normalizers.NFKC().normalize_str, normalizers.NFKD().normalize_str
decomposed = {c: nfd(chr(c)) for c in SCALARS}
moves = set()  # canonical combining class not 0: reorders with U+0345 (240) before it or U+0334 (1) behind it
for c in SCALARS:
    d = decomposed[c]
    if nfd("a\u0345" + chr(c)) != "a\u0345" + d or nfd("a" + chr(c) + "\u0334") != "a" + d + "\u0334":
        moves.add(c)
# Reorders a decomposition's last character with what follows, though the character itself starts with a starter.
starts = {c for c in moves if decomposed[c] != chr(c)}
moves -= starts
first, second = set(range(0x1100, 0x1113)), set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
for c, d in decomposed.items():
    if d != chr(c) and nfc(chr(c)) == chr(c):
        second.add(ord(d[-1]))
        head = nfc(d[:-1])
        if len(head) == 1:
            first.add(ord(head))
flags["nfd"] = moves | {c for c in SCALARS if decomposed[c] != chr(c)}
flags["nfkd"] = moves | {c for c in SCALARS if nfkd(chr(c)) != chr(c)}
flags["nfc"] = moves | second | {c for c in SCALARS if nfc(chr(c)) != chr(c)}
flags["nfkc"] = moves | second | {c for c in SCALARS if nfkc(chr(c)) != chr(c)}
flags["composes"] = first | {c for c in SCALARS if decomposed[c] != chr(c)}
for script in SCRIPTS:
    flags[script.lower()] = matched(r"\p{%s}" % script)

names = list(flags)
assert len(names) + 5 <= 32


def properties(c):
    bits = category.get(c, 0)
    for i, name in enumerate(names):
        if c in flags[name]:
            bits |= 1 << (5 + i)
    return bits


ranges = []
for c in SCALARS:
    bits = properties(c)
    if ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == bits:
        ranges[-1][1] = c
    else:
        ranges.append([c, c, bits])
ranges = [r for r in ranges if r[2]]

# Lower case, one character at a time as the package does it: [first, last, step] -> + delta; more than one is listed.
lower_runs, lower_long = [], []
for c in SCALARS:
    low = normalizers.Lowercase().normalize_str(chr(c))
    if low == chr(c):
        continue
    if len(low) > 1:
        lower_long.append((c, low))
        continue
    delta = ord(low) - c
    last = lower_runs[-1] if lower_runs else None
    if last and last[3] == delta and c - last[1] in (1, 2) and last[2] in (0, c - last[1]):
        last[1], last[2] = c, c - last[1]
    else:
        lower_runs.append([c, c, 0, delta])


def table(name, rows, per_line=7):
    text = f"constexpr {name} = {{\n"
    for i in range(0, len(rows), per_line):
        text += "    " + ", ".join(rows[i:i + per_line]) + ",\n"
    return text + "};\n"


with open(OUT, "w") as out:
    out.write(f"// Made by tools/golden_text_unicode.py with tokenizers {tokenizers.__version__}. Do not edit.\n")
    out.write("// clang-format off\n")
    out.write("// First code point, last, properties: bits 0-4 the general category (order of Category), then one bit each of\n")
    out.write("// " + ", ".join(names) + ".\n")
    out.write(table(f"PropertyRange kPropertyRanges[{len(ranges)}]",
                    ["{0x%X,0x%X,0x%X}" % tuple(r) for r in ranges]))
    out.write("// First, last, step, delta: lower case is the code point + delta.\n")
    out.write(table(f"LowerRange kLowerRanges[{len(lower_runs)}]",
                    ["{0x%X,0x%X,%d,%d}" % (a, b, s or 1, d) for a, b, s, d in lower_runs]))
    out.write("// Lower case of more than one character.\n")
    out.write(table(f"LowerLong kLowerLong[{len(lower_long)}]",
                    ['{0x%X,"%s"}' % (c, "".join("\\x%02x" % b for b in s.encode())) for c, s in lower_long]))
    out.write("// clang-format on\n")
print(len(ranges), "ranges", len(lower_runs), "lower", lower_long, "starts", len(starts))
