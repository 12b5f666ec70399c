"""Compares megatoken's ids with the `tokenizers` package's, and the time both take.

    python tools/golden_text_compare.py BENCH TOKENIZER_DIR [--book FILE] [--count N] [--seed S] [--large MB] [--golden]

BENCH is the program tokenizer_bench (bench/); TOKENIZER_DIR holds tokenizer.json, or tokenizer.json.xz, which is unpacked.
--book encodes a file as one text with both, in the same run; --count compares random strings: words, white space,
contractions, marks, added tokens, random and assigned code points, scripts, random and damaged bytes, sequences at the
borders of UTF-8, long runs, with and without special tokens; --large compares adversarial inputs of MB megabytes each;
--golden writes TOKENIZER_DIR/golden.json, which the test of real tokenizers reads (MEGATOKEN_TOKENIZER_FIXTURES). Needs the
tokenizers package. Exit status 1 when anything differs.
"""
import argparse
import json
import lzma
import os
import random
import resource
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unicodedata

import tokenizers

SPACES = [" ", "  ", "\n", "\r\n", "\t", "\n\n", "\u3000", "\u00a0", "\u0085", "\u180e", "\u200b", "\u2028", "\ufeff", "\r",
          "   ", "\x0b", "\x0c", "\u2581", "\u202f"]
CONTRACTIONS = ["'s", "'S", "'t", "'re", "'RE", "'Ve", "'m", "'ll", "'LL", "'lL", "'d", "'D", "'\u017f", "'", "''", "'x",
                "'l", "'r", "'v", "\u2019s"]
SIGNS = list("!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~") + ["...", "//", "</s>", "<|", "|>", "<0x0A>", "<0xE2>", "<unk>", "<bos>"]
MARKS = ["\u0301", "\u0300", "\u0323", "\u0302", "\u0345", "\u0327", "\u0338", "\u20dd"]
LETTERS = [0x4e2d, 0x3042, 0xac00, 0x1100, 0x1161, 0x11a8, 0x0e01, 0x05d0, 0x0627, 0x0915, 0x093c, 0x00aa, 0x02b0, 0x01c5,
           0x0660, 0x2160, 0x00b2]
ODD = ["é", "ß", "ﬁ", "İ", "ſ", "Ω", "Å", "ǆ", "ﷺ", "①", "½", "가", "e\u0301", "\U0001F468\u200d\U0001F469\u200d\U0001F467",
       "\U0001F1E9\U0001F1EA", "नमस्ते", "ไทย", "שלום", "مرحبا"]
RANGES = [(0, 0x80), (0, 0x800), (0, 0xD800), (0xE000, 0x10000), (0x10000, 0x20000), (0x10000, 0x110000), (0x300, 0x370),
          (0x1100, 0x1200), (0xAC00, 0xD7A4), (0x900, 0xE00), (0x1E00, 0x2000), (0x2000, 0x2070), (0x1F300, 0x1FA00),
          (0x4E00, 0x9FFF)]
# Beginnings, ends and borders of UTF-8: overlong forms, surrogates, beyond U+10FFFF, sequences cut short.
BYTES = [b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf0\x80\x80\x80",
         b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xfe", b"\xff", b"\x80", b"\xbf",
         b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xf0\x9f", b"\xe0\xa0", b"\xed\x9f", b"\xf4\x8f\xbf", b"\xc2", b"\xef\xbf\xbe",
         b"\xef\xbf\xbf", b"\xf4\x8f\xbf\xbf", b"\x00", b"\xef\xbb\xbf", b"\x7f", b"\xc2\x80", b"\xdf\xbf", b"\xe0\xa0\x80", b"\xf0\x90\x80\x80"]
SCRIPTS = ["LATIN", "GREEK", "CYRILLIC", "ARABIC", "HEBREW", "DEVANAGARI", "BENGALI", "TAMIL", "THAI", "TIBETAN", "MYANMAR",
           "GEORGIAN", "ETHIOPIC", "HANGUL", "HIRAGANA", "KATAKANA", "CJK", "MONGOLIAN", "KHMER", "CHEROKEE", "MATHEMATICAL"]


class Strings:
    def __init__(self, tokenizer, seed):
        self.rng = random.Random(seed)
        self.assigned = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
        by_script = {}
        for c in self.assigned:
            by_script.setdefault(unicodedata.name(c, "").split(" ")[0], []).append(c)
        self.scripts = [by_script[script] for script in SCRIPTS]
        self.added = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
        self.vocabulary = sorted(tokenizer.get_vocab())

    def character(self):
        return chr(self.rng.randrange(*self.rng.choice(RANGES)))

    def word(self):
        rng, n = self.rng, self.rng.randrange(1, 9)
        kind = rng.randrange(9)
        if kind < 4:
            alphabet = ["abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "aAbBsStTdDmMlLrReEvV", "0123456789"][kind]
            return "".join(rng.choice(alphabet) for _ in range(n))
        if kind == 4:
            return "".join(chr(rng.choice(LETTERS)) for _ in range(n))
        if kind == 5:
            return "".join(rng.choice("aeiouAEIOU") + rng.choice(MARKS) * rng.randrange(0, 3) for _ in range(n))
        if kind == 6:
            return "".join(self.character() for _ in range(n))
        if kind == 7:
            return rng.choice(self.vocabulary).replace("\u0120", " ").replace("\u010a", "\n").replace("\u2581", " ")
        return rng.choice(ODD)

    def text(self):
        rng, out = self.rng, []
        for _ in range(rng.randrange(1, 14)):
            kind = rng.randrange(12)
            if kind < 5:
                out.append(self.word())
            elif kind < 8:
                out.append(rng.choice(SPACES) * rng.choice([1, 1, 1, 2, 3]))
            elif kind == 8:
                out.append(rng.choice(CONTRACTIONS))
            elif kind == 9:
                out.append(rng.choice(SIGNS) * rng.choice([1, 1, 2, 3]))
            elif kind == 10 and self.added:
                out.append(rng.choice(self.added))
            else:
                out.append(rng.choice([self.word(), " "]) * rng.choice([1, 2, rng.randrange(1, 40)]))
        return "".join(out)

    def next(self):
        rng = self.rng
        kind = rng.randrange(14)
        if kind < 6:
            return self.text().encode()
        if kind < 8:
            return "".join(self.character() for _ in range(rng.randrange(0, 30))).encode()
        if kind == 8:
            return rng.randbytes(rng.randrange(0, 40))
        if kind == 9:
            return "".join(rng.choice(self.assigned) for _ in range(rng.randrange(0, 30))).encode()
        if kind == 10:
            script = rng.choice(self.scripts)
            return "".join(rng.choice(script) if rng.randrange(6) else rng.choice(" \n.,'1") for _ in range(rng.randrange(0, 40))).encode()
        if kind == 11:
            return b"".join(rng.choice([rng.choice(BYTES), rng.choice(BYTES), self.word().encode()]) for _ in range(rng.randrange(0, 12)))
        if kind == 12:
            unit = rng.choice([rng.choice(SPACES), rng.choice(SIGNS), self.character(), self.word(), rng.choice(MARKS)])
            return (unit * rng.randrange(1, 200) + self.word()).encode()[:400]
        damaged = bytearray(self.text().encode())
        for _ in range(rng.randrange(1, 4)):
            if damaged:
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        return bytes(damaged)


class Server:
    """tokenizer_bench serve, with an 8 MiB stack."""

    def __init__(self, program, directory):
        limit = lambda: resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, 8 << 20))
        self.process = subprocess.Popen([program, "serve", directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=limit)

    def encode(self, items):
        def feed():
            self.process.stdin.write(b"".join(struct.pack("<BI", special, len(text)) + text for special, text in items))
            self.process.stdin.flush()

        thread = threading.Thread(target=feed)
        thread.start()
        out = []
        for _ in items:
            count, = struct.unpack("<I", self.process.stdout.read(4))
            out.append(list(struct.unpack("<%di" % count, self.process.stdout.read(4 * count))))
        thread.join()
        return out


def show(name, text, got, want):
    at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    print(f"{name}: {ascii(text[:200])} differs at id {at}: {got[at:at + 6]} instead of {want[at:at + 6]}")


def compare_strings(server, tokenizer, count, seed):
    strings, done, ids, differing, start = Strings(tokenizer, seed), 0, 0, 0, time.time()
    while done < count:
        items = [(strings.rng.randrange(2), strings.next()) for _ in range(min(5000, count - done))]
        texts = [text.decode("utf-8", errors="replace") for _, text in items]
        want = [None] * len(items)
        for special in (0, 1):
            chosen = [i for i, item in enumerate(items) if item[0] == special]
            for i, encoding in zip(chosen, tokenizer.encode_batch([texts[i] for i in chosen], add_special_tokens=bool(special))):
                want[i] = encoding.ids
        for text, got, expected in zip(texts, server.encode(items), want):
            ids += len(expected)
            if got != expected:
                differing += 1
                if differing <= 8:
                    show("string", text, got, expected)
        done += len(items)
    print(f"{done} strings, {ids} ids: {differing} differ ({time.time() - start:.0f} s, seed {seed})")
    return differing


def compare_long(server, tokenizer):
    marks = ("e" + "\u0301\u0323" * 1000 + " ").encode() * 20
    cases = {"100,000 A": b"A" * 100000, "200,000 newlines": b"\n" * 200000, "200,000 spaces": b" " * 200000,
             "CRLF": b"\r\n" * 50000, "NUL": b"\0" * 1000, "BOM": b"\xef\xbb\xbfhello", "marks": marks,
             "CJK": "中文汉字かな交じり文ハングル한국어 テスト。".encode() * 2000, "bytes": bytes(range(256)) * 200,
             "100,000 marks": ("a" + "\u0301\u0316" * 50000).encode(), "quotes": b"'s" * 50000, "aB": b"aB" * 50000,
             "Jamo": "\u1100\u1161\u11a8".encode() * 5000,
             "glued": ("foo" + "bar".join([t.content for t in tokenizer.get_added_tokens_decoder().values()][:60]) + "x").encode()}
    differing = 0
    for name, data in cases.items():
        text = data.decode("utf-8", errors="replace")
        got, want = server.encode([(1, data)])[0], tokenizer.encode(text).ids
        if got != want:
            differing += 1
            show(name, text, got, want)
    print(f"{len(cases)} long inputs: {differing} differ")
    return differing


def large_cases(size):
    """Texts of about `size` bytes each that have no end, no border or nothing but borders."""
    rng = random.Random(7)
    fill = lambda text: (text.encode() * (size // len(text.encode()) + 1))[:size].decode(errors="ignore").encode()
    letters = lambda alphabet: "".join(rng.choice(alphabet) for _ in range(size // 8)) * 8
    yield "newlines", fill("\n")
    yield "spaces", fill(" ")
    yield "CRLF", fill("\r\n")
    yield "A", fill("A")
    yield "aB", fill("aB")
    yield "one word of random letters", letters("abcdefghijklmnopqrstuvwxyz").encode()
    yield "random digits", letters("0123456789").encode()
    yield "one run of marks", fill("\u0301\u0316\u0323\u0345")
    yield "marks on letters", fill("e\u0301\u0323o\u0308\u0304 ")
    yield "CJK", "".join(chr(rng.randrange(0x4E00, 0x9FA6)) for _ in range(size // 3)).encode()
    yield "Jamo", fill("\u1100\u1161\u11a8")
    yield "emoji joined", fill("\U0001F468\u200d\U0001F469\u200d")
    yield "quotes", fill("'s")
    yield "punctuation", letters("!\"#$%&()*+,-./:;<=>?@[]^_{|}~").encode()
    yield "0xFF", b"\xff" * size
    yield "random bytes", rng.randbytes(size)


def compare_large(server, tokenizer, megabytes):
    differing = 0
    for name, data in large_cases(int(megabytes * 1e6)):
        start = time.perf_counter()
        got = server.encode([(0, data)])[0]
        ours = time.perf_counter() - start
        text = data.decode("utf-8", errors="replace")
        start = time.perf_counter()
        try:
            want = tokenizer.encode(text, add_special_tokens=False).ids
        except BaseException as error:  # its regular expressions give up on some: a panic, which is no Exception
            if isinstance(error, KeyboardInterrupt):
                raise
            print(f"{name}: {len(data)} bytes, {len(got)} ids, {ours:.2f} s; tokenizers fails: {error}", flush=True)
            continue
        theirs = time.perf_counter() - start
        if got != want:
            differing += 1
            show(name, text, got, want)
        print(f"{name}: {len(data)} bytes, {len(want)} ids, {'equal' if got == want else 'DIFFERENT'}; "
              f"{ours:.2f} s, tokenizers {theirs:.2f} s", flush=True)
    return differing


def compare_book(program, directory, server, tokenizer, path):
    data = open(path, "rb").read()
    text = data.decode("utf-8", errors="replace")
    start = time.perf_counter()
    want = tokenizer.encode(text, add_special_tokens=False).ids
    theirs = time.perf_counter() - start
    got = server.encode([(0, data)])[0]
    if got != want:
        show("book", text, got, want)
    print(f"book: {len(data)} bytes, {len(want)} ids, {'equal' if got == want else 'DIFFERENT'}; "
          f"tokenizers {tokenizers.__version__}: {theirs:.3f} s ({len(data) / theirs / 1e6:.2f} MB/s)")
    print(subprocess.run([program, "time", directory, path, "3"], capture_output=True, text=True, check=True).stdout, end="")
    for size in ("150", "20000"):  # a verse or two; a chapter or two
        print(subprocess.run([program, "documents", directory, path, size], capture_output=True, text=True, check=True).stdout, end="")
    return int(got != want)


def write_golden(tokenizer, directory):
    strings, cases = Strings(tokenizer, 1), []
    for _ in range(500):
        data = strings.next()
        ids = tokenizer.encode(data.decode("utf-8", errors="replace"), add_special_tokens=False).ids
        cases.append({"hex": data.hex(), "ids": ids})
    with open(directory + "/golden.json", "w") as out:
        json.dump({"made_with": "tokenizers " + tokenizers.__version__, "cases": cases}, out)


def unpacked(directory, stack):
    """directory, or a copy of it with tokenizer.json.xz unpacked."""
    if os.path.exists(directory + "/tokenizer.json"):
        return directory
    copy = tempfile.TemporaryDirectory()
    stack.append(copy)
    for name in os.listdir(directory):
        data = open(os.path.join(directory, name), "rb").read()
        with open(os.path.join(copy.name, name.removesuffix(".xz")), "wb") as out:
            out.write(lzma.decompress(data) if name.endswith(".xz") else data)
    return copy.name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("directory")
    parser.add_argument("--book")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--large", type=float, default=0)
    parser.add_argument("--golden", action="store_true")
    options = parser.parse_args()
    copies = []
    directory = unpacked(options.directory, copies)
    tokenizer = tokenizers.Tokenizer.from_file(directory + "/tokenizer.json")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    server = Server(options.program, directory)
    differing = 0
    if options.book:
        differing += compare_book(options.program, directory, server, tokenizer, options.book)
    differing += compare_long(server, tokenizer)
    if options.large:
        differing += compare_large(server, tokenizer, options.large)
    if options.count:
        differing += compare_strings(server, tokenizer, options.count, options.seed)
    if options.golden:
        write_golden(tokenizer, options.directory)
    sys.exit(differing != 0)


if __name__ == "__main__":
    main()
