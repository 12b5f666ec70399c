"""Reads what the program writes, and what the examples hold, with the packages that define the formats: TensorBoard's own
reader on the event files of a short run, accelerate's own loader on its configuration files, transformers on the model.
Needs tensorboard, accelerate and transformers; prints what it found and exits 1 at the first difference.

    python tools/check_formats.py build/megatoken
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import accelerate
import tensorboard
import torch
import transformers
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.utils import ParallelismConfig
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = pathlib.Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests/golden/qwen3_tied"


def run(program, out):
    command = [program, "train", "--model_name_or_path", GOLDEN, "--dataset_name", GOLDEN / "train.jsonl", "--max_length", "64"]
    command += ["--use_cpu", "--max_steps", "5", "--logging_steps", "1", "--eval_strategy", "steps", "--eval_steps", "2"]
    command += ["--eval_dataset", GOLDEN / "train.jsonl", "--save_strategy", "no", "--dtype", "float32", "--output_dir", out]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return [json.loads(line) for line in (out / "trainer_log.jsonl").read_text().splitlines()]


def check_events(out, lines):
    events = EventAccumulator(str(next((out / "runs").iterdir())))
    events.Reload()
    count = 0
    for tag in events.Tags()["scalars"]:
        kind, _, key = tag.partition("/")
        logged = {line["step"]: line for line in lines if ("eval_loss" in line) == (kind == "eval")}
        for event in events.Scalars(tag):
            value = logged[event.step][("eval_" if kind == "eval" else "") + key]
            assert abs(event.value - value) <= 1e-6 * abs(value), (tag, event.step, event.value, value)
            count += 1
    assert {"train/loss", "train/grad_norm", "train/learning_rate", "eval/loss"} <= set(events.Tags()["scalars"])
    print(f"tensorboard {tensorboard.__version__}: {count} values of {len(events.Tags()['scalars'])} tags, all as in trainer_log.jsonl")


def check_accelerate():
    for path in sorted((ROOT / "examples/accelerate_configs").glob("*.yaml")):
        config = load_config_from_file(str(path))
        sizes = {key.removeprefix("parallelism_config_"): value for key, value in config.parallelism_config.items()}
        mesh = ParallelismConfig(**sizes)
        assert mesh.total_size == config.num_processes, (path, mesh.total_size, config.num_processes)
        print(f"accelerate {accelerate.__version__}: {path.name}: {config.distributed_type}, {config.num_processes} processes, cp {mesh.cp_size}")


def check_model(out):
    model = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    row = json.loads((GOLDEN / "train.jsonl").read_text().splitlines()[0])
    ids = torch.tensor([row["input_ids"]])
    print(f"transformers {transformers.__version__}: the model loads; loss of a row {model(ids, labels=ids).loss.item():.4f}")


def main():
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "out"
        lines = run(sys.argv[1], out)
        check_events(out, lines)
        check_accelerate()
        check_model(out)


main()
