#!/usr/bin/env python3
"""Loads an exported model directory in transformers and prints what it computes, for a comparison by hand.

    python tools/check_export.py MODEL_DIR IDS.json [--dtype float32] [--text TEXT] [--save LOGITS.safetensors]

IDS.json: a list of token ids, a list of such lists, or an object with "documents": [{"input_ids": [...], "labels":
[...]}] (tests/golden/*/expected.json is one). Prints one JSON object a line: the model as transformers understood it,
each document's loss and logits, the loss over all targets, the tokenizer on TEXT. With an expected.safetensors beside
IDS.json its logits are compared too. Exit status 1: tensors missing, unexpected or of another shape, or non-finite
values.
"""

import argparse
import json
import pathlib
import sys

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.utils import logging as hf_logging

IGNORE = -100


def read_documents(path):
    value = json.loads(path.read_text())
    if isinstance(value, dict):
        value = value["documents"]
    if value and isinstance(value[0], int):
        value = [value]
    documents = [d if isinstance(d, dict) else {"input_ids": d} for d in value]
    return [(torch.tensor(d["input_ids"]), torch.tensor(d.get("labels", d["input_ids"]))) for d in documents]


def show(**line):
    print(json.dumps(line))


def stored_types(directory):
    types = {}
    for file in sorted(directory.glob("model*.safetensors")):
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():
                kind = tensors.get_slice(name).get_dtype()
                types[kind] = types.get(kind, 0) + 1
    return types


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("ids", type=pathlib.Path)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--text", default="In the beginning, 1611: «naïve» 日本\n\n")
    parser.add_argument("--save", type=pathlib.Path, help="write the logits here, as logits.<document>")
    args = parser.parse_args()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()

    model, info = AutoModelForCausalLM.from_pretrained(
        args.model, dtype=getattr(torch, args.dtype), output_loading_info=True, local_files_only=True
    )
    model.eval()
    problems = {key: sorted(str(v) for v in values) for key, values in info.items() if values}
    show(
        model=type(model).__name__,
        parameters=sum(p.numel() for p in model.parameters()),
        stored_tensors=stored_types(args.model),
        tied=model.get_output_embeddings().weight is model.get_input_embeddings().weight,
        rope=model.config.rope_parameters,
        problems=problems,
    )
    if (args.model / "generation_config.json").exists():
        show(generation_config=GenerationConfig.from_pretrained(args.model).to_diff_dict())
    if (args.model / "tokenizer.json").exists():
        tokenizer = AutoTokenizer.from_pretrained(args.model, local_files_only=True)
        ids = tokenizer(args.text, add_special_tokens=False).input_ids
        show(text=args.text, ids=ids, same_text_back=tokenizer.decode(ids) == args.text)

    documents = read_documents(args.ids)
    beside = args.ids.parent / "expected.safetensors"
    golden = safe_open(beside, "pt") if beside.exists() else None
    finite, total, targets, saved = True, 0.0, 0, {}
    for index, (ids, labels) in enumerate(documents):
        if "dynamic" in model.model.rotary_emb.rope_type:  # it remembers the longest document seen
            model.model.rotary_emb = type(model.model.rotary_emb)(config=model.config)
        with torch.no_grad():
            logits = model(input_ids=ids[None], use_cache=False).logits[0].float()
        target = torch.cat([labels[1:], torch.tensor([IGNORE])])
        nll = torch.nn.functional.cross_entropy(logits, target, ignore_index=IGNORE, reduction="none").double()
        count = int((target != IGNORE).sum())
        line = {
            "document": index,
            "tokens": len(ids),
            "targets": count,
            "loss": float(nll.sum()) / count if count else None,
            "logits_norm": float(logits.double().norm()),
            "last_logits": [round(x, 6) for x in logits[-1, :8].tolist()],
            "predicted_next": int(logits[-1].argmax()),
        }
        if golden is not None and f"logits.{index}" in golden.keys():
            expected = golden.get_tensor(f"logits.{index}")
            same = expected.shape == logits.shape  # else they are another model's
            line["logits_error"] = float((logits - expected).norm() / expected.norm()) if same else None
        show(**line)
        finite = finite and bool(torch.isfinite(logits).all())
        total, targets = total + float(nll.sum()), targets + count
        saved[f"logits.{index}"] = logits.contiguous()
    show(loss=total / targets if targets else None, targets=targets, finite=finite)
    if args.save:
        save_file(saved, args.save)
    sys.exit(1 if problems or not finite else 0)


if __name__ == "__main__":
    main()
