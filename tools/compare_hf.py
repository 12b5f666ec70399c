#!/usr/bin/env python3
"""Trains with transformers, row by row, and prints trainer_log.jsonl's fields for a comparison by hand.

    python tools/compare_hf.py MODEL_DIR ROWS.jsonl --max_steps 3 --learning_rate 1e-5 [--gradient_checkpointing] ...

ROWS.jsonl: one {"input_ids": [...], "labels": [...]} a line (no labels: all tokens); rows are taken in order and again
from the start. Each row is a document of its own: no padding, nothing seen across rows. The loss of a step is the mean
over the targets of all its rows; AdamW is set up as transformers' Trainer does (no decay on norms and biases). A short
window ends an epoch.

--dtype float32: everything in float32. bfloat16: weights and activations in bfloat16, masters, gradient sums and AdamW
in float32. autocast: float32 weights under torch.autocast.
The logits of `--loss_rows` targets exist at a time, so a large vocabulary does not set the memory needed.
"""

import argparse
import contextlib
import json
import os
import pathlib
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # models are directories: without a network, transformers would wait for it

import torch
from safetensors.torch import save_file
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, Trainer, get_scheduler
from transformers.utils import logging as hf_logging

IGNORE = -100


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("rows", type=pathlib.Path)
    parser.add_argument("--max_steps", type=int, default=3)
    parser.add_argument("--per_device_train_batch_size", type=int, default=1)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--max_length", type=int, help="cut rows to this many tokens")
    parser.add_argument("--learning_rate", type=float, default=2e-5)
    parser.add_argument("--lr_scheduler_type", default="linear")
    parser.add_argument("--lr_scheduler_kwargs", type=json.loads, default={})
    parser.add_argument("--warmup_steps", type=int, default=0)
    parser.add_argument("--weight_decay", type=float, default=0.0)
    parser.add_argument("--adam_beta1", type=float, default=0.9)
    parser.add_argument("--adam_beta2", type=float, default=0.999)
    parser.add_argument("--adam_epsilon", type=float, default=1e-8)
    parser.add_argument("--max_grad_norm", type=float, default=1.0)
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "autocast"), default="float32")
    parser.add_argument("--attn_implementation", choices=("sdpa", "eager"), default="sdpa")
    parser.add_argument("--gradient_checkpointing", action="store_true")
    parser.add_argument("--loss_rows", type=int, default=1024)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rope_parameters", type=json.loads, help="instead of config.json's")
    parser.add_argument("--save", type=pathlib.Path, help="write the final float32 weights to this safetensors file")
    return parser.parse_args()


def read_rows(path, max_length, device):
    rows = []
    for line in path.read_text().splitlines():
        row = json.loads(line)
        ids = torch.tensor(row["input_ids"][:max_length], device=device)
        labels = torch.tensor((row.get("labels") or row["input_ids"])[:max_length], device=device)
        if len(ids) != len(labels):
            sys.exit(f"{path}: row {len(rows)} has {len(ids)} ids and {len(labels)} labels")
        rows.append((ids, labels))
    return rows


def targets_of(rows):
    return sum(int((labels[1:] != IGNORE).sum()) for _, labels in rows)


def tile_of_loss(hidden, target, head, bias):
    logits = torch.nn.functional.linear(hidden, head, bias).float()
    log_p = logits.log_softmax(-1)
    with torch.no_grad():
        correct = (logits.argmax(-1) == target).sum()
        entropy = -(log_p.exp() * log_p).sum()
    return torch.nn.functional.nll_loss(log_p, target, reduction="sum"), correct, entropy


def row_loss(model, ids, labels, loss_rows):
    """Sums over the row's targets: loss (with its graph), correct predictions, entropy."""
    rotary = model.model.rotary_emb
    if "dynamic" in rotary.rope_type:  # it remembers the longest row seen
        model.model.rotary_emb = type(rotary)(config=model.config)
    hidden = model.model(input_ids=ids[None], use_cache=False).last_hidden_state[0, :-1]
    at = labels[1:] != IGNORE
    hidden, target = hidden[at], labels[1:][at]
    head = model.get_output_embeddings()
    total = [hidden.new_zeros((), dtype=torch.float32), 0, 0.0]
    for start in range(0, len(target), loss_rows):
        piece = slice(start, start + loss_rows)
        part = checkpoint(tile_of_loss, hidden[piece], target[piece], head.weight, head.bias, use_reentrant=False)
        total = [a + b for a, b in zip(total, part)]
    return total


def main():
    args = arguments()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    if args.threads:
        torch.set_num_threads(args.threads)
    rows = read_rows(args.rows, args.max_length, args.device)
    dtype = torch.bfloat16 if args.dtype == "bfloat16" else torch.float32
    changes = {"rope_parameters": args.rope_parameters} if args.rope_parameters else {}
    model = AutoModelForCausalLM.from_pretrained(
        args.model, dtype=torch.float32, attn_implementation=args.attn_implementation, local_files_only=True, **changes
    )
    model = model.to(args.device).train()
    if args.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    masters = {name: torch.nn.Parameter(p.detach().clone()) for name, p in model.named_parameters()}
    for parameter in model.parameters():  # not model.to(): it would round the rope frequencies too
        parameter.data = parameter.data.to(dtype)

    decayed = set(Trainer.get_decay_parameter_names(None, model))
    groups = [
        {"params": [m for n, m in masters.items() if (n in decayed) == decay], "weight_decay": amount}
        for decay, amount in ((True, args.weight_decay), (False, 0.0))
    ]
    optimizer = torch.optim.AdamW(
        groups, lr=args.learning_rate, betas=(args.adam_beta1, args.adam_beta2), eps=args.adam_epsilon
    )
    schedule = get_scheduler(
        args.lr_scheduler_type, optimizer, args.warmup_steps, args.max_steps, args.lr_scheduler_kwargs
    )
    window = args.per_device_train_batch_size * args.gradient_accumulation_steps
    steps_per_epoch = -(-len(rows) // window)
    tokens = 0
    for step in range(args.max_steps):
        started = time.perf_counter()
        first = step % steps_per_epoch * window
        batch = rows[first : first + window]
        count = targets_of(batch)
        if count == 0:
            sys.exit(f"step {step + 1} has no target")
        loss, correct, entropy = 0.0, 0, 0.0
        for ids, labels in batch:
            if targets_of([(ids, labels)]):
                autocast = args.dtype == "autocast"
                with torch.autocast(args.device, torch.bfloat16) if autocast else contextlib.nullcontext():
                    sums = row_loss(model, ids, labels, args.loss_rows)
                (sums[0] / count).backward()
                loss += float(sums[0].detach())
                correct += int(sums[1])
                entropy += float(sums[2])
            for name, parameter in model.named_parameters():
                if parameter.grad is not None:
                    grad = parameter.grad.float()
                    masters[name].grad = grad if masters[name].grad is None else masters[name].grad + grad
                    parameter.grad = None
            tokens += len(ids)
        norm = float(torch.nn.utils.get_total_norm([m.grad for m in masters.values()]))
        if args.max_grad_norm > 0:
            torch.nn.utils.clip_grad_norm_(masters.values(), args.max_grad_norm)
        rate = schedule.get_last_lr()[0]
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(masters[name])
        line = {
            "step": step + 1,
            "epoch": (step + 1) / steps_per_epoch,
            "loss": loss / count,
            "grad_norm": norm,
            "learning_rate": rate,
            "num_tokens": tokens,
            "target_tokens": count,
            "mean_token_accuracy": correct / count,
            "entropy": entropy / count,
            "step_time_s": round(time.perf_counter() - started, 3),
        }
        print(json.dumps(line), flush=True)
    if args.save:
        save_file({name: m.detach().contiguous() for name, m in masters.items()}, args.save)


if __name__ == "__main__":
    main()
