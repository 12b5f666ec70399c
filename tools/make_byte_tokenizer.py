"""Writes configs/demo/tokenizer.json and tokenizer_config.json: one token a byte (its id is the byte), and <|endoftext|>.

    python tools/make_byte_tokenizer.py [DIRECTORY]     # needs nothing but Python; transformers' AutoTokenizer loads it
"""
import json
import os
import sys

directory = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "configs", "demo")
END = "<|endoftext|>"

# GPT-2's alphabet: printable bytes stand for themselves, the others for U+0100 and up, in order.
printable = set(range(0x21, 0x7F)) | set(range(0xA1, 0xAD)) | set(range(0xAE, 0x100))
others = [b for b in range(256) if b not in printable]
alphabet = [chr(b) if b in printable else chr(0x100 + others.index(b)) for b in range(256)]

byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
tokenizer = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [{"id": 256, "content": END, "single_word": False, "lstrip": False, "rstrip": False,
                      "normalized": False, "special": True}],
    "normalizer": None,
    "pre_tokenizer": byte_level,
    "post_processor": None,
    "decoder": byte_level,
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
              "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
              "vocab": {character: b for b, character in enumerate(alphabet)}, "merges": []},
}
config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": END, "bos_token": None,
          "unk_token": None, "clean_up_tokenization_spaces": False, "model_max_length": 1048576}

for name, value in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
    with open(os.path.join(directory, name), "w", encoding="utf-8") as out:
        json.dump(value, out, ensure_ascii=False, indent=1)
        out.write("\n")
