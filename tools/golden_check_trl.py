#!/usr/bin/env python3
"""Runs TRL's SFTTrainer on the training cases of tests/golden and compares its log with expected.json.

    python tools/golden_check_trl.py [--golden tests/golden]

needs trl and datasets besides what golden_models.py needs. Changes nothing; exit status 1 on a disagreement.
TRL logs token accuracy and entropy as means over micro-batches of the micro-batches' means; they are recomputed that
way from the golden per-micro-batch numbers, so that the definition of each is compared and the difference is on record.
"""

import argparse
import json
import pathlib
import sys
import tempfile

import torch
from datasets import Dataset
from safetensors.torch import load_file
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging as hf_logging
from trl import SFTConfig, SFTTrainer


def tokenizer(vocab):
    words = {f"<{i}>": i for i in range(vocab)}
    core = Tokenizer(models.WordLevel(words, unk_token="<0>"))
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<1>", pad_token="<0>")


def run(directory, settings, loss_type):
    rows = [json.loads(line) for line in open(directory / "train.jsonl")]
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    with tempfile.TemporaryDirectory() as scratch:
        arguments = SFTConfig(
            output_dir=scratch,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            max_length=None,
            optim="adamw_torch",
            loss_type=loss_type,
            seed=0,
            **settings,
        )
        trainer = SFTTrainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer(model.config.vocab_size),
        )
        trainer.train()
    log = [line for line in trainer.state.log_history if "grad_norm" in line]
    return log, dict(model.named_parameters())


def mean_of_means(step, key):
    counts = step["micro_batch_targets"]
    values = step["micro_batch_" + key]
    return sum(v / c for v, c in zip(values, counts)) / len(counts)


def main():
    here = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--golden", type=pathlib.Path, default=here / "tests" / "golden")
    args = parser.parse_args()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    torch.set_num_threads(1)
    bad = 0
    for file in sorted(args.golden.glob("*/expected.json")):
        training = json.loads(file.read_text()).get("training")
        if not training:
            continue
        weights = load_file(file.parent / "trained.safetensors")
        for loss_type in ("nll", "chunked_nll"):
            log, trained = run(file.parent, training["settings"], loss_type)
            if len(log) != len(training["steps"]):
                sys.exit(f"{file.parent.name}: {len(log)} steps")
            worst = dict.fromkeys(("loss", "grad_norm", "learning_rate", "num_tokens", "accuracy", "entropy"), 0.0)
            for ours, theirs in zip(training["steps"], log):
                pairs = {key: (ours[key], theirs[key]) for key in ("loss", "grad_norm", "learning_rate", "num_tokens")}
                pairs["accuracy"] = (mean_of_means(ours, "correct"), theirs["mean_token_accuracy"])
                pairs["entropy"] = (mean_of_means(ours, "entropy_sum"), theirs["entropy"])
                for key, (a, b) in pairs.items():
                    worst[key] = max(worst[key], abs(a - b) / max(abs(b), 1e-12))
            worst["weights"] = max(float((trained[n].detach() - w).norm() / w.norm()) for n, w in weights.items())
            bad += any(value > 1e-5 for value in worst.values())
            print(file.parent.name, loss_type, {key: f"{value:.1e}" for key, value in worst.items()})
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
