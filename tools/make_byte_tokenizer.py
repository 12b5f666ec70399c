#!/usr/bin/env python3
"""Writes configs/demo/tokenizer.json and tokenizer_config.json: one token a byte, and an end-of-text token.

Made with tokenizers 0.23.3 and loads in transformers 5.24 as PreTrainedTokenizerFast.
"""
import json
import pathlib

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

END = "<|endoftext|>"

# Token i is byte i: the byte-level alphabet lists printable bytes as themselves and the others from U+0100 on.
printable = list(range(ord("!"), ord("~") + 1)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
others = [b for b in range(256) if b not in printable]
character = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}

tokenizer = Tokenizer(models.BPE(vocab={character[b]: b for b in range(256)}, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens([AddedToken(END, special=True, normalized=False)])

out = pathlib.Path(__file__).resolve().parent.parent / "configs" / "demo"
out.mkdir(parents=True, exist_ok=True)
tokenizer.save(str(out / "tokenizer.json"))
config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": END, "model_max_length": 8192}
(out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")

assert tokenizer.encode("In the beginning\n\u00e9").ids == list("In the beginning\n\u00e9".encode())
