#!/usr/bin/env python3
"""Times one training step in PyTorch on the CPU: the other side of our own measurement.

    python tools/bench_torch_step.py --tokens 8192 --threads 2 [--steps 3] [--loss full|chunked] [--write_config DIR]

The model is transformers' Qwen3 of 4 layers, hidden 256, 8 query and 4 KV heads of 64, vocabulary 8192, from random
weights (or --config DIR/config.json), float32, SDPA, every layer checkpointed, one row of random tokens, AdamW with
clipping. --loss full is transformers' own loss (all logits at once); chunked holds 1,024 rows of logits at a time.
--write_config DIR only writes the config.json, for a run of megatoken with init_from_config.

Prints one JSON object: step times without the first step, their median, VmHWM after loading, at the end, and the
growth. VmHWM is the process's largest resident memory so far (/proc/self/status): one process per measurement.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time
import warnings

import torch
import transformers
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging as hf_logging

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 8192,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "hidden_act": "silu",
    "max_position_embeddings": 1048576,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    "tie_word_embeddings": True,
    "attention_bias": False,
    "initializer_range": 0.02,
    "dtype": "float32",
}


def peak_bytes():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    sys.exit("no VmHWM in /proc/self/status")


def tile_of_loss(hidden, target, weight):
    logits = torch.nn.functional.linear(hidden, weight).float()
    return torch.nn.functional.cross_entropy(logits, target, reduction="sum")


def step_loss(model, ids, kind):
    if kind == "full":
        return model(input_ids=ids, labels=ids, use_cache=False).loss
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[0, :-1]
    target = ids[0, 1:]
    weight = model.get_output_embeddings().weight
    total = 0.0
    for start in range(0, len(target), 1024):
        piece = slice(start, start + 1024)
        total = total + checkpoint(tile_of_loss, hidden[piece], target[piece], weight, use_reentrant=False)
    return total / len(target)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3, help="measured steps, after one that is not")
    parser.add_argument("--loss", choices=("full", "chunked"), default="full")
    parser.add_argument("--config", type=pathlib.Path, help="a directory with another config.json")
    parser.add_argument("--write_config", type=pathlib.Path)
    args = parser.parse_args()
    if args.write_config:
        args.write_config.mkdir(parents=True, exist_ok=True)
        (args.write_config / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
        return
    hf_logging.set_verbosity_error()
    warnings.filterwarnings("ignore", category=FutureWarning)
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    if args.config:
        config = AutoConfig.from_pretrained(args.config)
    else:
        config = AutoConfig.for_model(**{k: v for k, v in CONFIG.items() if k != "architectures"})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="sdpa").train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0)
    ids = torch.randint(0, config.vocab_size, (1, args.tokens))
    loaded = peak_bytes()
    times, losses = [], []
    for _ in range(args.steps + 1):
        started = time.perf_counter()
        loss = step_loss(model, ids, args.loss)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
        times.append(time.perf_counter() - started)
    peak = peak_bytes()
    result = {
        "tokens": args.tokens,
        "threads": args.threads,
        "loss_kind": args.loss,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "step_s": [round(t, 3) for t in times[1:]],
        "median_step_s": round(statistics.median(times[1:]), 3),
        "losses": losses,
        "vmhwm_loaded_bytes": loaded,
        "vmhwm_bytes": peak,
        "vmhwm_growth_bytes": peak - loaded,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
