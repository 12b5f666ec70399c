"""Writes tests/data/tokenizers: small tokenizers of every family, each with what the `tokenizers` package makes of tricky
strings, and digests of what it makes of every code point.

    python tools/golden_text_tokenizers.py     # tokenizers 0.23.3 and transformers 5.24.0 made the committed files

The tokenizers are trained on the text below, which was written for this. A case is {"hex": bytes, "ids": without special
tokens added, "special": what is added at the front and the back}; long cases are {"unit": hex, "times": n, "count": ids,
"crc32": FNV-1a of the ids as little-endian 32-bit words}. Bytes that aren't UTF-8 are decoded with errors="replace".
"""
import json
import os
import random
import shutil
import struct
import zlib

import tokenizers
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = os.path.join(os.path.dirname(__file__), "..", "tests", "data", "tokenizers")
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+")
LLAMA = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# Possessive quantifiers, a quantified interval and line ends: goes through the general translation.
TIKTOKEN = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$"
            r"|\s*[\r\n]|\s+(?!\S)|\s")

TEXT = """The river runs past the mill, and the miller's daughter doesn't count the days. She'll wait; they've all waited.
"We're going down to the water," said the old man, "and we won't come back before the lamps are lit."
In the evening the wind turned north. The boats that had gone out in the morning were not seen again until Thursday.
A loss of 2.4371 after 1000 steps, 12 345 678 tokens, and a learning rate of 1e-5: that's what the log said.
for (int64_t i = 0; i < count; ++i) {\n\t\tsum += values[i] * weights[i];\n\t}\n\n\treturn sum / static_cast<double>(count);
def tokens(text):\n    return [token for token in text.split() if token != "the"]\n\n\n
Die Mühle steht am Fluss; die Tochter des Müllers zählt die Tage nicht. Größe, Straße, Äpfel, Öl und Übermut.
Le vent tourna au nord ; les bateaux n'étaient pas rentrés. Où êtes-vous allés, déjà ? Ça, c'est l'été à la française.
El río pasa junto al molino y la niña no cuenta los días. ¿Mañana? ¡Mañana será otro día!
Река течёт мимо мельницы, и дочь мельника не считает дней. Ветер повернул к северу.
河水流过磨坊，磨坊主的女儿不数日子。风转向北方，船没有回来。
川は水車小屋のそばを流れる。カゼは北へ変わった。
강물은 물레방앗간을 지나 흐른다. 바람이 북쪽으로 바뀌었다.
النهر يجري قرب الطاحونة. नदी चक्की के पास से बहती है। แม่น้ำไหลผ่านโรงสี
"""
CORPUS = [TEXT] * 3 + [line for line in TEXT.split("\n") for _ in range(2)]

SPACES = [" ", "  ", "\n", "\r\n", "\t", "\n\n", "\u3000", "\u00a0", "\u0085", "\u180e", "\u200b", "\u2028", "\ufeff", "\r", "\x0b"]
ODD = ("é e\u0301 ß ﬁ İ ſ Ω Å ǆ ﷺ ① ½ 가 각 \u1100\u1161\u11a8 नमस्ते ไทย שלום مرحبا "
       "\U0001F468\u200d\U0001F469\u200d\U0001F467 \U0001F1E9\U0001F1EA \U00016121 \U0001E030 \u1e0a\u0323 a\u0323\u0307 \u0344").split(" ")
FIXED = [
    b"", b" ", b"\n", b"\0", b"\0\0a\0", b"\xef\xbb\xbfbom", b"a\r\nb\r\rc\n\n \n  d  \n", b"   leading and trailing   ",
    b"don't DON'T we'LL they'Re I'M he'D it'S 'tis '' 's'", "it'\u017f I'\u017fx".encode(), b"x" * 70, b"=" * 70, b"12345678901 1 22 333 4444",
    "naïve café — “quoted” … ½ ² ③ Ⅷ ٣".encode(), "AbCdEF ABCd aBCD ÀÉî ǅabc ǅ ʰʰ ªº 中A中a A中 ".encode(),
    "e\u0301\u0323 e\u0323\u0301 \u1ec7 \u0301 a\u20dd \u0344 \u1e9b\u0323 \u212b \u2126 \ufb01 \uff21\uff22".encode(),
    b"invalid \xff\xfe \xc3( \xe2\x82 \xe2\x28\xa1 \xf0\x9f\x98 \xed\xa0\x80 \xf4\x90\x80\x80 \xc0\xaf end\xe4",
    b"<|endoftext|>", b"a<|endoftext|>b", b"<|im_start|>user\nhi<|im_end|>\n<think>\n\n</think>", b"<|im_start", b"<|<|im_start|>|>",
    b"<bos>hello<eos> <start_of_turn>\n\n\n\t\t", b" [PAD]  x  [PAD]\n", b"yes yesno no-yes yes", b"  keep  ", b"KEEP keep Keep",
    b"a / b // c/\n/\n\nd", b"\t\tif (x) {\r\n\t\t}\r\n", "\u2581a \u2581 \u2581\u2581b<0x41><unk>".encode(),
    "日本語のテキスト、漢字と かな。 한국어 텍스트".encode(), "\U0001F600\U0001F601 \U0001F468\u200d\U0001F469\u200d\U0001F467!".encode(),
]
LONG = [("A", 100000), ("a", 100000), ("\n", 200000), (" ", 100000), ("\t", 20000), ("'", 20000), ("!", 20000), ("1", 20000), ("aB", 20000),
        ("中", 20000), ("中A", 20000), ("a\u0301\u0316", 20000), ("\u0301\u0316", 20000), ("\r\n", 20000), ("the ", 20000),
        ("\xff", 20000), ("\U0001F600", 10000), (TEXT, 20)]


def random_cases(rng, tok, count):
    added = [t.content for t in tok.get_added_tokens_decoder().values()]
    vocab = sorted(tok.get_vocab())

    def word():
        kind = rng.randrange(7)
        if kind == 0:
            return rng.choice(TEXT.split())
        if kind == 1:
            return "".join(rng.choice("aAbBsStTdDmMlLrReEvV'") for _ in range(rng.randrange(1, 8)))
        if kind == 2:
            return "".join(rng.choice("0123456789٣½") for _ in range(rng.randrange(1, 8)))
        if kind == 3:
            return rng.choice("aeoAEO") + "".join(rng.choice("\u0301\u0300\u0323\u0302\u0345\u0327\u0338\u20dd") for _ in range(rng.randrange(3)))
        if kind == 4:
            return rng.choice(ODD)
        if kind == 5:
            return "".join(chr(rng.choice([rng.randrange(0x20, 0x2000), rng.randrange(0x2000, 0xD800), rng.randrange(0xE000, 0x20000)])) for _ in range(rng.randrange(1, 6)))
        return rng.choice(vocab)

    for _ in range(count):
        parts = []
        for _ in range(rng.randrange(1, 10)):
            parts.append(rng.choice([word, word, lambda: rng.choice(SPACES) * rng.randrange(1, 4), lambda: rng.choice(added) if added else "",
                                     lambda: rng.choice("!\"#$%&()*+,-./:;<=>?@[]^_`{|}~") * rng.randrange(1, 4)])())
        text = bytearray("".join(parts).encode())
        if rng.random() < 0.2 and text:
            text[rng.randrange(len(text))] = rng.randrange(256)
        yield bytes(text)


def ids_digest(ids):
    return "%08x" % zlib.crc32(struct.pack("<%di" % len(ids), *ids))


def byte_level(pattern, normalizer=None, use_regex=False, extra=(), vocab=560, **model):
    tok = Tokenizer(models.BPE(**model))
    tok.normalizer = normalizer
    steps = list(extra)
    if pattern:
        steps.append(pre_tokenizers.Split(Regex(pattern), "isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex))
    tok.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return tok


def sentencepiece(vocab=760, **model):
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True, **model))
    tok.normalizer = normalizers.Replace(" ", "▁")
    specials = ["<pad>", "<eos>", "<bos>", "<unk>"] + ["<0x%02X>" % b for b in range(256)]
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=specials, limit_alphabet=110, max_token_length=12, show_progress=False))
    tok = Tokenizer.from_str(tok.to_str())
    state = json.loads(tok.to_str())
    state["added_tokens"] = [t for t in state["added_tokens"] if not t["content"].startswith("<0x")]
    tok = Tokenizer.from_str(json.dumps(state))
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tok


def special(*contents):
    return [AddedToken(c, special=True, normalized=False) for c in contents]


def families():
    tok = byte_level(QWEN, normalizers.NFC())
    tok.add_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tok.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    yield "qwen", tok, {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
                        "bos_token": None, "add_bos_token": False, "chat_template": "{{ messages[0].content }}"}

    tok = byte_level(LLAMA, ignore_merges=True)
    tok.add_tokens(special("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"))
    bos = tok.token_to_id("<|begin_of_text|>")
    tok.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B:1", special_tokens=[("<|begin_of_text|>", bos)])])
    yield "llama3", tok, {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin_of_text|>",
                          "eos_token": {"__type": "AddedToken", "content": "<|eot_id|>", "lstrip": False, "rstrip": False,
                                        "single_word": False, "normalized": False, "special": True}}

    tok = byte_level(O200K, ignore_merges=True)
    tok.add_tokens(special("<|startoftext|>", "<|endoftext|>", "<|return|>"))
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    yield "o200k", tok, {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|startoftext|>", "eos_token": "<|return|>"}

    tok = sentencepiece()
    tok.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tok.add_tokens([AddedToken(c, normalized=False) for c in ("\n\n", "\n\n\n", "▁▁", "▁▁▁▁", "\t\t", "<unused0>")])
    tok.add_tokens(special("<start_of_turn>", "<end_of_turn>"))
    tok.post_processor = processors.TemplateProcessing(single="<bos> $A", pair="<bos> $A <bos> $B:1", special_tokens=[("<bos>", tok.token_to_id("<bos>"))])
    yield "gemma", tok, {"tokenizer_class": "GemmaTokenizer", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}

    # SmolLM2: single digits, then ByteLevel with its own pattern.
    tok = byte_level(None, use_regex=True, extra=[pre_tokenizers.Digits(individual_digits=True)])
    tok.add_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    yield "gpt2", tok, {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}

    # Metaspace at the start only, without splitting, as today's conversions of Llama 2 have it.
    tok = sentencepiece()
    tok.normalizer = None
    tok.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    yield "metaspace", tok, {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>", "eos_token": "<eos>"}

    # A pattern without a scanner, a chain of normalizers, and every flag of added tokens.
    tok = byte_level(TIKTOKEN, normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
                                                     normalizers.Replace(Regex(r"\p{Sc}+"), "$")]))
    tok.add_tokens([AddedToken("[PAD]", lstrip=True, rstrip=True, normalized=False, special=True), AddedToken("yes", single_word=True),
                    AddedToken("KEEP", normalized=True, rstrip=True), AddedToken("a b", normalized=False, lstrip=True)])
    tok.post_processor = processors.RobertaProcessing(("[PAD]", tok.token_to_id("[PAD]")), ("yes", tok.token_to_id("yes")))
    yield "chain", tok, {"tokenizer_class": "PreTrainedTokenizerFast"}

    # No byte fallback, holes in the alphabet: unk tokens one by one.
    tok = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##", end_of_word_suffix="</w>"))
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_next")])
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=420, limit_alphabet=60, special_tokens=["[UNK]"],
                                                        continuing_subword_prefix="##", end_of_word_suffix="</w>", show_progress=False))
    yield "unk", tok, None


def write_family(name, tok, config):
    folder = os.path.join(OUT, name)
    os.makedirs(folder)
    tok.save(os.path.join(folder, "tokenizer.json"), pretty=False)
    tok = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    if config is not None:
        with open(os.path.join(folder, "tokenizer_config.json"), "w") as out:
            json.dump(config, out, indent=1)
            out.write("\n")
    rng = random.Random(name)
    cases = []
    for data in FIXED + list(random_cases(rng, tok, 110)):
        text = data.decode("utf-8", errors="replace")
        plain, full = tok.encode(text, add_special_tokens=False), tok.encode(text)
        case = {"hex": data.hex(), "ids": plain.ids}
        extra = len(full.ids) - len(plain.ids)
        front = next(i for i in range(extra + 1) if full.ids[i:i + len(plain.ids)] == plain.ids)
        if extra:
            case["special"] = [full.ids[:front], full.ids[front + len(plain.ids):]]
        case["text"] = tok.decode(plain.ids, skip_special_tokens=False)
        case["replaced"] = sum(1 for _ in text if _ == "\ufffd") - data.count("\ufffd".encode())
        cases.append(case)
    long = []
    for unit, times in LONG:
        data = unit.encode("latin-1") if unit == "\xff" else unit.encode()
        ids = tok.encode((data * times).decode("utf-8", errors="replace"), add_special_tokens=False).ids
        long.append({"unit": data.hex(), "times": times, "count": len(ids), "crc32": ids_digest(ids)})
    with open(os.path.join(folder, "golden.json"), "w") as out:
        lines = ",\n".join(json.dumps(c, ensure_ascii=True, separators=(",", ":")) for c in cases)
        long_lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in long)
        out.write('{"made_with":"tokenizers %s",\n"cases":[\n%s\n],\n"long":[\n%s\n]}\n' % (tokenizers.__version__, lines, long_lines))
    check_transformers(name, folder, cases, config)


def check_transformers(name, folder, cases, config):
    """transformers' own loading gives the same ids (its classes rebuild some parts of tokenizer.json)."""
    if config is None or name in ("gpt2",):  # its class has a pre-tokenizer of its own
        return
    auto = transformers.AutoTokenizer.from_pretrained(folder)
    for case in cases:
        text = bytes.fromhex(case["hex"]).decode("utf-8", errors="replace")
        want = case.get("special", [[], []])[0] + case["ids"] + case.get("special", [[], []])[1]
        assert auto(text)["input_ids"] == want, (name, text, auto(text)["input_ids"], want)


def unicode_digests():
    scalars = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    everything = "".join(map(chr, scalars))
    result = {"made_with": "tokenizers " + tokenizers.__version__, "normalizers": {}, "pre_tokenizers": []}
    kinds = {"NFC": normalizers.NFC(), "NFD": normalizers.NFD(), "NFKC": normalizers.NFKC(), "NFKD": normalizers.NFKD(),
             "Lowercase": normalizers.Lowercase(), "StripAccents": normalizers.StripAccents(), "Nmt": normalizers.Nmt()}
    for name, kind in kinds.items():
        # Each code point alone, between a base and two marks, and behind a Hangul syllable.
        digest = 0
        for c in scalars:
            for text in (chr(c), "a" + chr(c) + "\u0301\u0327", "\uac00" + chr(c)):
                digest = zlib.crc32(kind.normalize_str(text).encode(), digest)
        result["normalizers"][name] = "%08x" % digest
    splits = [pre_tokenizers.Digits(True), pre_tokenizers.Digits(False), pre_tokenizers.Punctuation(), pre_tokenizers.Whitespace(),
              pre_tokenizers.WhitespaceSplit()]
    patterns = [r"\s", r"\w", r"\d", r"\p{Han}", r"\p{Hiragana}", r"\p{Katakana}", r"\p{Hangul}"] + [r"\p{%s}" % n for n in (
        "L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Co Cn").split()]
    patterns += [QWEN, LLAMA, O200K, TIKTOKEN]
    for split in splits + [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]:
        lengths = [len(piece.encode()) for piece, _ in split.pre_tokenize_str(everything)]
        result["pre_tokenizers"].append({"part": json.loads(split.__getstate__()), "pieces": len(lengths), "crc32": ids_digest(lengths)})
    with open(os.path.join(OUT, "unicode.json"), "w") as out:
        json.dump(result, out, indent=1)
        out.write("\n")


if __name__ == "__main__":
    shutil.rmtree(OUT, ignore_errors=True)
    os.makedirs(OUT)
    for family in families():
        write_family(*family)
    unicode_digests()
    for folder, _, files in sorted(os.walk(OUT)):
        for file in sorted(files):
            print(os.path.relpath(os.path.join(folder, file), OUT), os.path.getsize(os.path.join(folder, file)))
