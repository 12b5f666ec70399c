#!/usr/bin/env python3
"""Makes tests/data/golden_sft: datasets as files, a small tokenizer, and the rows that TRL's SFTTrainer trains on.

    python tools/golden_sft_rows.py [--out tests/data/golden_sft]

needs trl and datasets besides what golden_models.py needs; made with Python 3.11, trl 1.16.0, datasets 5.2.0,
transformers 5.24.0, tokenizers 0.23.3. Files go through datasets.load_dataset and SFTTrainer's own preparation and
collator; cases.json has for each case its settings and, per row, input_ids and (unshifted) labels.
"""

import argparse
import json
import pathlib
import shutil
import tempfile

from datasets import load_dataset
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM
from trl import SFTConfig, SFTTrainer

CORPUS = [
    "In the beginning God created the heaven and the earth. And the earth was without form, and void;",
    "the quick brown fox jumps over the lazy dog; the other dogs were there, and then they were not.",
    "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer 1234567890.",
    "Größe, naïve café, été; 你好，世界。こんにちは。",
] * 4

TEXT_ROWS = [
    {"text": "In the beginning God created the heaven and the earth.", "source": "x"},
    {"text": "an end of its own<|end|>", "source": None},
    {"text": "<|end|> in front, \r\n and a tab\t", "source": "y"},
    {"text": "", "source": "empty"},
    {"text": "<|end|>", "source": "only the end"},
    {"text": " Größe 你好 \u0000 \U0001f600 e\u0301", "source": "z"},
    {"text": "the " * 40, "source": "long"},
]
CONTENT_ROWS = [{"content": row["text"], "label": i} for i, row in enumerate(TEXT_ROWS)]
PROMPT_ROWS = [
    {"prompt": "To be, or not", "completion": " to be, that is the question"},
    {"prompt": "", "completion": "the fox"},
    {"prompt": "the fox ", "completion": ""},
    {"prompt": "In the beg", "completion": "inning"},  # the border falls inside a token
    {"prompt": "whether ", "completion": "'tis nobler<|end|>"},
    {"prompt": "the other dogs were there " * 5, "completion": "and then they were not"},
]
ID_ROWS = [
    {"input_ids": [5, 6, 7, 8], "labels": [5, 6, 7, 8]},
    {"input_ids": [5, 6, 7, 8], "labels": [-100, -100, 7, 8]},
    {"input_ids": [9, 10, 11, 12], "labels": [9, -100, 11, -100]},
    {"input_ids": list(range(5, 45)), "labels": [-100] * 30 + list(range(35, 45))},
    {"input_ids": [7], "labels": [7]},
    {"input_ids": [1, 2, 3], "labels": [4, 5, 6]},
]
BOOK = (
    "In the beginning\r\nGod created\n\n\nthe heaven\rand the earth.\n\nAnd the earth was without form,\r\n\r\nand void;\n"
    " and darkness\n\n\n\nwas upon the face of the deep.\nthe fox\n"
)

# name: (file, load_dataset's kwargs, SFTConfig's kwargs, tokenizer)
CASES = {
    "text": ("text.jsonl", {}, {}, "plain"),
    "text_cut": ("text.jsonl", {}, {"max_length": 12}, "plain"),
    "text_bos": ("text.jsonl", {}, {}, "bos"),
    "content": ("content.jsonl", {}, {"dataset_text_field": "content"}, "plain"),
    "prompt": ("prompt.jsonl", {}, {}, "plain"),
    "prompt_bos": ("prompt.jsonl", {}, {}, "bos"),
    "prompt_cut": ("prompt.jsonl", {}, {"max_length": 20}, "plain"),
    "prompt_full": ("prompt.jsonl", {}, {"completion_only_loss": False}, "plain"),
    "ids": ("ids.jsonl", {}, {}, "plain"),
    "ids_cut": ("ids.jsonl", {}, {"max_length": 33}, "plain"),
    "list": ("list.json", {}, {}, "plain"),
    "line": ("book.txt", {"sample_by": "line"}, {}, "plain"),
    "paragraph": ("book.txt", {"sample_by": "paragraph"}, {}, "plain"),
    "document": ("book.txt", {"sample_by": "document"}, {}, "plain"),
    "document_cut": ("book.txt", {"sample_by": "document"}, {"max_length": 30}, "bos"),
}


def make_tokenizer(directory, with_bos):
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(t, special=True, normalized=False) for t in ("<|pad|>", "<|end|>", "<|start|>")],
        show_progress=False,
    )
    core.train_from_iterator(CORPUS, trainer)
    if with_bos:
        core.post_processor = processors.TemplateProcessing(
            single="<|start|> $A", pair="<|start|> $A $B", special_tokens=[("<|start|>", core.token_to_id("<|start|>"))]
        )
    directory.mkdir(parents=True)
    core.save(str(directory / "tokenizer.json"), pretty=False)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|end|>",
        "pad_token": "<|pad|>",
        "clean_up_tokenization_spaces": False,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")


def rows_of(path, load, settings, tokenizer):
    kind = "text" if path.suffix == ".txt" else "json"
    with tempfile.TemporaryDirectory() as scratch:
        dataset = load_dataset(kind, data_files=str(path), split="train", cache_dir=scratch, **load)
        model = Qwen2ForCausalLM(
            Qwen2Config(vocab_size=400, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
                        num_key_value_heads=1)
        )
        config = SFTConfig(output_dir=scratch, report_to=[], use_cpu=True, bf16=False, seed=0, **settings)
        trainer = SFTTrainer(model, config, train_dataset=dataset, processing_class=tokenizer)
        rows = []
        for row in trainer.train_dataset:
            if not row["input_ids"]:
                rows.append({"input_ids": [], "labels": []})
                continue
            batch = trainer.data_collator([row])
            rows.append({key: batch[key][0].tolist() for key in ("input_ids", "labels")})
        return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/data/golden_sft"))
    out = parser.parse_args().out
    shutil.rmtree(out, ignore_errors=True)
    for name in ("plain", "bos"):
        make_tokenizer(out / name, name == "bos")
    for name, rows in (("text", TEXT_ROWS), ("content", CONTENT_ROWS), ("prompt", PROMPT_ROWS), ("ids", ID_ROWS)):
        (out / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (out / "list.json").write_text(json.dumps(TEXT_ROWS[:3], indent=2) + "\n")
    (out / "book.txt").write_bytes(BOOK.encode())
    cases = {}
    for name, (file, load, settings, tokenizer) in CASES.items():
        rows = rows_of(out / file, load, settings, AutoTokenizer.from_pretrained(out / tokenizer))
        cases[name] = {"file": file, "tokenizer": tokenizer, **load, **settings, "rows": rows}
    text = ",\n".join(f'"{name}": {json.dumps(case)}' for name, case in cases.items())
    (out / "cases.json").write_text("{\n" + text + "\n}\n")


if __name__ == "__main__":
    main()
