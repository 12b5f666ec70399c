#!/usr/bin/env python3
"""Checks a megatoken program on a GPU from outside, as a user would: whole trainings of small random models.

    tools/check_gpu.py build/megatoken [--only NAME,...] [--long]

Standard library only. One line a check with its figures; exit status 1 when any fails. What is checked:
  cpu       20 steps in bf16 on the GPU and on the CPU: losses within 1e-2
  ranks     1, 2, 4 ranks as threads on the one GPU, both exchanges: the same losses
  future    unlabelled tokens behind the labelled ones change neither loss nor gradient norm
  lengths   odd lengths from 1 token on: as on the CPU; on 4 ranks as on one
  policies  where activations and state wait changes nothing but what two runs differ by; tiles, head groups and key blocks
            only roundings
  repeat    two runs of one seed: the first loss equal, later ones up to the rounding of cuDNN's dq
  memory    the process's device memory against the plan, from outside (nvidia-smi)
  start     seconds from the command to the first step
  border    (--long) tokens x heads, tokens x intermediate and targets x vocabulary beyond 2^31 elements: as without the
            unlabelled tail
"""
import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def relative(a, b):
    return abs(a - b) / abs(b) if b else abs(a)


class Run:
    """One training: its log lines, its output, seconds to the first line of the plan, peak device memory in bytes."""

    def __init__(self, checks, model, rows, watch=False, **keys):
        out = tempfile.mkdtemp(dir=checks.work)
        data = os.path.join(out, "rows.jsonl")
        with open(data, "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        settings = dict(model_name_or_path=model, dataset_name=data, output_dir=out, max_steps=len(rows), seed=3,
                        max_length=max(len(row["input_ids"]) for row in rows), per_device_train_batch_size=1,
                        train_sampling_strategy="sequential", save_strategy="no", logging_steps=1, disable_tqdm=True,
                        learning_rate=1e-3, lr_scheduler_type="constant", dtype="bfloat16", device="cuda")
        settings.update(keys)
        command = [checks.program, "train"]
        for key, value in settings.items():
            command += ["--" + key, str(value).lower() if isinstance(value, bool) else str(value)]
        base = used_memory() if watch else 0
        self.peak, self.started, self.output = 0, None, ""
        begin = time.time()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        done = threading.Event()

        def poll():
            while not done.wait(0.05):
                self.peak = max(self.peak, used_memory() - base)

        watcher = threading.Thread(target=poll) if watch else None
        if watcher:
            watcher.start()
        for line in process.stdout:
            if line.startswith("plan:"):
                self.started = time.time() - begin
            self.output += line
        self.status = process.wait()
        done.set()
        if watcher:
            watcher.join()
        self.steps = []
        log = os.path.join(out, "trainer_log.jsonl")
        if os.path.exists(log):
            with open(log) as file:
                self.steps = [line for line in map(json.loads, file) if "loss" in line]

    def column(self, key):
        return [step[key] for step in self.steps]


def used_memory():
    text = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"],
                          capture_output=True, text=True, check=True).stdout
    return int(text) << 20


def distance(a, b, key="loss"):
    """The largest relative difference of a column; infinite where a run failed."""
    if a.status or b.status or len(a.steps) != len(b.steps) or not a.steps:
        return math.inf
    return max(relative(x, y) for x, y in zip(a.column(key), b.column(key)))


class Checks:
    def __init__(self, program, work):
        self.program, self.work, self.failed = os.path.abspath(program), work, 0
        self.random = random.Random(7)

    def golden(self, name):
        return os.path.join(ROOT, "tests", "golden", name)

    def model(self, **changes):
        """A random model's directory: config.json alone."""
        config = dict(model_type="qwen3", vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=2,
                      num_attention_heads=8, num_key_value_heads=4, head_dim=64, tie_word_embeddings=True,
                      rms_norm_eps=1e-6, max_position_embeddings=1 << 21, torch_dtype="bfloat16",
                      rope_parameters={"rope_type": "default", "rope_theta": 1e6})
        config.update(changes)
        path = tempfile.mkdtemp(dir=self.work)
        with open(os.path.join(path, "config.json"), "w") as file:
            json.dump(config, file)
        return path

    def row(self, length, vocab=512, labelled=None):
        ids = self.random.choices(range(vocab), k=length)
        row = {"input_ids": ids}
        if labelled is not None:
            row["labels"] = ids[:labelled] + [-100] * (length - labelled)
        return row

    def say(self, name, good, text, *runs):
        print(f"{'ok    ' if good else 'FAILED'} {name}: {text}", flush=True)
        if not good:
            self.failed += 1
            for run in runs:
                if run.status:
                    print(run.output[-600:], flush=True)

    def check_cpu(self):
        for name in ("qwen3_tied", "llama3"):
            rows = [self.row(96, 97) for _ in range(20)]
            gpu = Run(self, self.golden(name), rows, learning_rate=1e-2)
            cpu = Run(self, self.golden(name), rows, learning_rate=1e-2, device="cpu", bf16=True)
            far = distance(gpu, cpu)
            self.say("cpu", far < 1e-2, f"{name}, 20 steps: losses differ by {far:.1e} at most", gpu, cpu)

    def check_ranks(self):
        rows = [self.row(length) for length in (2048, 3000, 4096)]
        model = self.model()
        one = Run(self, model, rows, init_from_config=True)
        for ranks in (2, 4):
            for exchange in ("allgather", "alltoall"):
                many = Run(self, model, rows, init_from_config=True, num_processes=ranks, cp_size=ranks,
                           parallelism_config_cp_comm_strategy=exchange)
                loss, norm = distance(many, one), distance(many, one, "grad_norm")
                self.say("ranks", loss < 5e-3 and norm < 2e-2,
                         f"{ranks} ranks by {exchange}: loss {loss:.1e}, gradient norm {norm:.1e}", many)

    def check_future(self):
        model = self.model()
        rows = [self.row(4096, labelled=1000) for _ in range(2)]
        short = [{"input_ids": row["input_ids"][:1000]} for row in rows]
        a, b = (Run(self, model, r, init_from_config=True) for r in (short, rows))
        loss, norm = distance(a, b), distance(a, b, "grad_norm")
        self.say("future", loss < 1e-3 and norm < 1e-2, f"3,096 tokens more: loss {loss:.1e}, gradient norm {norm:.1e}", a, b)

    def check_lengths(self):
        model = self.model()
        lengths = (2, 3, 5, 127, 128, 129, 255, 1000, 1023)
        rows = [self.row(length) for length in lengths]
        gpu = Run(self, model, rows, init_from_config=True, learning_rate=0)
        cpu = Run(self, model, rows, init_from_config=True, learning_rate=0, device="cpu", bf16=True)
        four = Run(self, model, rows, init_from_config=True, learning_rate=0, num_processes=4, cp_size=4)
        again = Run(self, model, rows, init_from_config=True, learning_rate=0)
        to_cpu, to_four, to_again = (distance(gpu, other) for other in (cpu, four, again))
        self.say("lengths", max(to_cpu, to_four) < 5e-3 and to_again == 0,
                 f"{lengths}: to the CPU {to_cpu:.1e}, to 4 ranks {to_four:.1e}, again {to_again:.1e}", gpu, cpu, four, again)

    def check_policies(self):
        model = self.model(num_hidden_layers=4)
        rows = [self.row(3000) for _ in range(3)]
        base = Run(self, model, rows, init_from_config=True, token_tile=1024)
        for keys in (dict(layer_input="host", attention_output="host"), dict(layer_input="recompute"),
                     dict(attention_output="recompute"), dict(optimizer_state="host"),
                     dict(optimizer_state="host", gradients="host"),
                     dict(optimizer_state="host", gradients="host", parameters="host")):
            run = Run(self, model, rows, init_from_config=True, token_tile=1024, **keys)
            # The first loss is a forward pass alone. Later ones carry the rounding of cuDNN's dq, which differs from run to run.
            same = run.column("loss")[:1] == base.column("loss")[:1]
            far = distance(run, base)
            self.say("policies", same and far < 1e-4, f"{keys}: first loss equal: {same}; all three {far:.1e}", run)
        for keys in (dict(token_tile=256), dict(loss_tile=128), dict(head_group=1), dict(kv_block=512)):
            far = distance(Run(self, model, rows, init_from_config=True, **keys), base)
            self.say("policies", far < 5e-3, f"{keys}: loss {far:.1e}")

    def check_repeat(self):
        rows = [self.row(16384, 151936) for _ in range(4)]
        model = os.path.join(ROOT, "bench", "models", "qwen3-0.6b")
        a, b = (Run(self, model, rows, init_from_config=True, learning_rate=1e-5) for _ in range(2))
        loss, norm = distance(a, b), distance(a, b, "grad_norm")
        same = a.column("loss")[:1] == b.column("loss")[:1]
        self.say("repeat", same and loss < 1e-4, f"0.6B, 16,384 tokens, 4 steps: loss {loss:.1e}, gradient norm {norm:.1e}", a, b)
        print("       ", *(f"{x!r}/{y!r}" for x, y in zip(a.column("loss"), b.column("loss"))))

    def check_memory(self):
        small = os.path.join(ROOT, "bench", "models", "qwen3-0.6b")
        with open(os.path.join(ROOT, "bench", "models", "qwen3-8b", "config.json")) as file:
            eight = json.load(file)
        eight["num_hidden_layers"] = 4
        large = self.model(**eight)
        for name, model, tokens, keys in (
                ("0.6B", small, 16384, {}),
                ("0.6B", small, 65536, dict(layer_input="host", attention_output="host", head_group=4)),
                ("0.6B", small, 65536, dict(optimizer_state="host", head_group=2, kv_block=32768)),
                ("0.6B", small, 32768, dict(layer_input="recompute", token_tile=4096, loss_tile=512)),
                ("8B, 4 layers", large, 32768, {}),
                ("8B, 4 layers", large, 65536, dict(attention_output="host:2,device:2", head_group=2))):
            run = Run(self, model, [self.row(tokens, 151936) for _ in range(2)], watch=True, init_from_config=True,
                      learning_rate=1e-5, **keys)
            planned = max(run.column("peak_device_bytes"), default=0)
            share = run.peak / planned if planned else math.inf
            self.say("memory", abs(share - 1) < 0.02, f"{name}, {tokens} tokens, {keys}: {run.peak / 2**30:.2f} GiB measured, "
                     f"{planned / 2**30:.2f} planned: {share:.4f}", run)

    def check_start(self):
        model = os.path.join(ROOT, "bench", "models", "qwen3-0.6b")
        run = Run(self, model, [self.row(131072, 151936)], init_from_config=True)
        good = run.started is not None and run.started < 20
        self.say("start", good, f"0.6B, 131,072 tokens: {run.started} s to the first step", run)

    def check_border(self):
        model = self.model(num_hidden_layers=1, hidden_size=512, intermediate_size=4096, vocab_size=151936,
                           num_attention_heads=32, num_key_value_heads=8, head_dim=128)
        rows = [self.row(640 * 1024, 151936, labelled=40000)]
        short = [{"input_ids": rows[0]["input_ids"][:40000]}]
        a, b = (Run(self, model, r, init_from_config=True) for r in (short, rows))
        loss, norm = distance(a, b), distance(a, b, "grad_norm")
        self.say("border", loss < 1e-3 and norm < 1e-2,
                 f"655,360 x 4,096 of heads and of the MLP, 40,000 x 151,936 of logits: loss {loss:.1e}, gradient norm {norm:.1e}, {b.column('step_time_s')} s", a, b)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--only", default="")
    parser.add_argument("--long", action="store_true", help="also what takes minutes")
    options = parser.parse_args()
    names = [name[6:] for name in Checks.__dict__ if name.startswith("check_")]
    chosen = options.only.split(",") if options.only else [n for n in names if n != "border" or options.long]
    for name in chosen:
        if name not in names:
            parser.error(f"there is no check {name}: {', '.join(names)}")
    with tempfile.TemporaryDirectory() as work:
        checks = Checks(options.program, work)
        for name in chosen:
            begin = time.time()
            getattr(checks, "check_" + name)()
            print(f"        ({name}: {time.time() - begin:.1f} s)", flush=True)
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
