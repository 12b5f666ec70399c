#!/usr/bin/env python3
"""Times megatoken's training step on the CPU beside PyTorch's, in one run, and compares their memory.

    python tools/bench_cpu_step.py --tokens 8192 32768 [--threads 2] [--steps 3] [--rounds 1] [--loss full chunked]
                                   [--ranks 1 2] [--program build/megatoken]

The model and PyTorch's side are those of tools/bench_torch_step.py (it needs torch and transformers). Both are bound to
the same `--threads` processors, take turns `--rounds` times, and leave their first step out. --ranks: megatoken also as
that many ranks, threads of one process that share the processors and the sequence; 0 of them: PyTorch alone.

Memory is VmHWM. PyTorch's counts from after the model was loaded. megatoken's counts from a `plan` of the same job, so
it includes what PyTorch's leaves out: the weights themselves.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

TORCH_STEP = pathlib.Path(__file__).with_name("bench_torch_step.py")
VOCABULARY = 8192


def run(command):
    """Standard output and the largest resident bytes of a program."""
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen([str(part) for part in command], stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read()
    if process.returncode:
        sys.exit(f"{command[0]} failed:\n{text}")
    return text, usage.ru_maxrss * 1024


class Ours:
    def __init__(self, program, folder, tokens, steps, ranks):
        self.name = "megatoken" if ranks == 1 else f"megatoken, {ranks} ranks"
        rows = folder / f"rows_{tokens}.jsonl"
        source = random.Random(0)
        with open(rows, "w") as out:
            for _ in range(steps + 1):
                out.write(json.dumps({"input_ids": source.choices(range(VOCABULARY), k=tokens)}) + "\n")
        self.out = folder / "out"
        job = {
            "model_name_or_path": folder / "model",
            "dtype": "float32",
            "use_cpu": "true",
            "max_length": tokens,
            "per_device_train_batch_size": 1,
            "num_processes": ranks,
            "parallelism_config_cp_size": ranks,
        }
        training = {
            "init_from_config": "true",
            "dataset_name": rows,
            "max_steps": steps + 1,
            "learning_rate": 1e-4,
            "save_strategy": "no",
            "output_dir": self.out,
        }
        words = [word for key, value in job.items() for word in (f"--{key}", value)]
        more = [word for key, value in training.items() for word in (f"--{key}", value)]
        self.plan, self.train = [program, "plan", *words], [program, "train", *words, *more]

    def measure(self):
        _, before = run(self.plan)
        _, peak = run(self.train)
        lines = [json.loads(line) for line in open(self.out / "trainer_log.jsonl")]
        return [line["step_time_s"] for line in lines if "step_time_s" in line][1:], peak - before


class PyTorch:
    def __init__(self, tokens, steps, threads, loss):
        self.name = f"PyTorch, {loss} loss"
        self.command = [sys.executable, TORCH_STEP, "--tokens", tokens, "--steps", steps, "--threads", threads]
        self.command += ["--loss", loss]

    def measure(self):
        text, _ = run(self.command)
        result = json.loads(text.splitlines()[-1])
        self.name = self.name.split(" (")[0] + f" ({result['torch']}, transformers {result['transformers']})"
        return result["step_s"], result["vmhwm_growth_bytes"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[8192])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3, help="measured steps, after one that is not")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--loss", choices=("full", "chunked"), nargs="*", default=["full", "chunked"])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1])
    parser.add_argument("--program", type=pathlib.Path, default=TORCH_STEP.parents[1] / "build/megatoken")
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run([sys.executable, TORCH_STEP, "--write_config", folder / "model"])
        for tokens in args.tokens:
            sides = [Ours(args.program.resolve(), folder, tokens, args.steps, ranks) for ranks in args.ranks if ranks]
            sides += [PyTorch(tokens, args.steps, args.threads, loss) for loss in args.loss]
            times, growth = [[] for _ in sides], [0] * len(sides)
            for _ in range(args.rounds):
                for i, side in enumerate(sides):
                    seconds, memory = side.measure()
                    times[i] += seconds
                    growth[i] = max(growth[i], memory)
            print(f"{tokens} tokens, {args.threads} threads")
            for i, side in enumerate(sides):
                median = statistics.median(times[i])
                print(f"  {median:8.2f} s  {min(times[i]):8.2f} least  {growth[i] / 2**20:7.0f} MiB  {side.name}")
                for j in range(i):
                    time_ratio, memory_ratio = statistics.median(times[j]) / median, growth[j] / growth[i]
                    print(f"    {sides[j].name}: {time_ratio:.3f} of its time, {memory_ratio:.3f} of its memory")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
