#!/usr/bin/env python3
"""The reference's table (TRL's recipe for 1M tokens on 8 H100s) on the GPUs of this host.

    bench/reference_table.py build/megatoken [--num_processes N] [--rows NAME,...] [--exchanges allgather,alltoall]
                             [--minutes M] [--out table.md]

Standard library only. First a small model on one rank and on N: losses and gradient norms must be equal, else exit status 1.
Then each row: real training steps on random weights and random tokens, `--steps` of them, the last one quoted. Where a row's
steps would take longer than its `--minutes`, or its host memory is more than is here, it runs with the first layers of the
model and is scaled to all of them as the planned times scale: the column "layers" says so. Beside it stand the plan's time and
what `megatoken rehearse` says of one rank's share alone on one GPU. "Waited" is how long compute stood still for other streams
(exchange and transfers together), by the profile of the last step.

With --device cpu and a divisor for the tokens it runs anywhere: a test of itself, not a measurement.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading

MODELS = pathlib.Path(__file__).resolve().parent / "models"

# name, model, tokens, device_memory inside which it is planned, the reference's seconds and GB a GPU on 8 H100s.
ROWS = (
    ("0.6b-1m", "qwen3-0.6b", 1048576, "8GiB", 137, 27.9),
    ("8b-1m", "qwen3-8b", 1048576, "18GiB", 364, 56.2),
    ("30b-a3b-1m", "qwen3-30b-a3b", 1048576, "20GiB", 483, 46.0),
    ("32b-1m", "qwen3-32b", 1048576, "24GiB", 1295, 60.8),
    ("0.6b-4m", "qwen3-0.6b", 4194304, "24GiB", 2135, 73.7),
)
REFERENCE_RANKS = 8


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--num_processes", type=int, help="without it: as many as there are GPUs")
    parser.add_argument("--rows", default=",".join(row[0] for row in ROWS))
    parser.add_argument("--exchanges", default="allgather,alltoall")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=10, help="of one row by one exchange, all its steps together")
    parser.add_argument("--host_memory", help="without it: what the host has")
    parser.add_argument("--models", type=pathlib.Path, default=MODELS)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tokens_divisor", type=int, default=1)
    parser.add_argument("--no_rehearsal", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    return parser.parse_args()


class Bench:
    def __init__(self, options, work):
        self.options, self.work = options, pathlib.Path(work)
        self.program = os.path.abspath(options.program)
        self.ranks = options.num_processes or count_gpus()
        self.random = random.Random(0)

    def command(self, verb, model, tokens, memory, exchange, **more):
        keys = dict(model_name_or_path=model, init_from_config=True, max_length=tokens, num_processes=self.ranks,
                    cp_size=self.ranks, per_device_train_batch_size=1, device=self.options.device,
                    parallelism_config_cp_comm_strategy=exchange)
        if memory and self.options.device == "cuda":
            keys["device_memory"] = memory
        if self.options.host_memory:
            keys["host_memory"] = self.options.host_memory
        keys.update(more)
        command = [self.program, verb]
        for key, value in keys.items():
            command += ["--" + key, str(value).lower() if isinstance(value, bool) else str(value)]
        return command

    def json_of(self, command):
        """The JSON object that a command prints; a string: why it refused."""
        done = subprocess.run(command + ["--json"], capture_output=True, text=True)
        if done.returncode == 0:
            return json.loads(done.stdout)
        return (done.stderr or done.stdout).strip().splitlines()[-1]

    def shortened(self, model, layers):
        """The model's first layers: its directory with another config.json."""
        config = json.loads((model / "config.json").read_text())
        if layers == config["num_hidden_layers"]:
            return model
        config["num_hidden_layers"] = layers
        if "layer_types" in config:
            config["layer_types"] = config["layer_types"][:layers]
        path = self.work / f"{model.name}-{layers}"
        path.mkdir(exist_ok=True)
        (path / "config.json").write_text(json.dumps(config))
        return path

    def rows_file(self, model, tokens, rows):
        vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
        path = self.work / "rows.jsonl"
        with open(path, "w") as file:
            for _ in range(rows):
                file.write(json.dumps({"input_ids": self.random.choices(range(vocabulary), k=tokens)}) + "\n")
        return path

    def train(self, model, tokens, memory, exchange, rows, **more):
        """Log lines of the steps, seconds waited in the last one, peak bytes of the fullest GPU seen from outside."""
        out = self.work / "out"
        shutil.rmtree(out, ignore_errors=True)
        steps = self.options.steps
        keys = dict(dataset_name=rows, max_steps=steps, output_dir=out, learning_rate=1e-5, lr_scheduler_type="constant",
                    save_strategy="no", logging_steps=1, disable_tqdm=True, train_sampling_strategy="sequential", seed=3,
                    profile_step=steps)
        command = self.command("train", model, tokens, memory, exchange, **(keys | more))
        with Watch(self.options.device == "cuda") as watch:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}\nexit status {done.returncode}")
        with open(out / "trainer_log.jsonl") as file:
            lines = [line for line in map(json.loads, file) if "loss" in line]
        waited = re.search(r"waiting for other streams\s+\d+ x\s+([\d.]+) s", done.stdout)
        return lines, float(waited.group(1)) if waited else None, watch.peak

    def check_ranks(self):
        """N ranks give one rank's numbers."""
        config = dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"], vocab_size=512, hidden_size=256,
                      intermediate_size=512, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=4, head_dim=64,
                      tie_word_embeddings=True, rms_norm_eps=1e-6, max_position_embeddings=8192, torch_dtype="bfloat16",
                      hidden_act="silu", rope_parameters={"rope_type": "default", "rope_theta": 1e6})
        model = self.work / "small"
        model.mkdir()
        (model / "config.json").write_text(json.dumps(config))
        rows = self.rows_file(model, 4096, self.options.steps)
        good = True
        one, _, _ = self.train(model, 4096, None, "allgather", rows, num_processes=1, cp_size=1, learning_rate=1e-3)
        for exchange in self.options.exchanges.split(","):
            many, _, _ = self.train(model, 4096, None, exchange, rows, learning_rate=1e-3)
            loss, norm = (max(abs(a[key] - b[key]) / abs(b[key]) for a, b in zip(many, one)) for key in ("loss", "grad_norm"))
            equal = len(many) == len(one) and loss < 5e-3 and norm < 2e-2
            print(f"{'ok    ' if equal else 'FAILED'} {self.ranks} ranks by {exchange} against one: loss {loss:.1e}, "
                  f"gradient norm {norm:.1e}", flush=True)
            good = good and equal
        return good

    def measure(self, row, exchange):
        """One line of the table, as cells."""
        name, model_name, tokens, memory, reference_s, reference_gb = row
        model, tokens = self.options.models / model_name, tokens // self.options.tokens_divisor
        if not (model / "config.json").exists():
            return [name, exchange, f"no {model}"]
        all_layers = json.loads((model / "config.json").read_text())["num_hidden_layers"]
        whole = self.json_of(self.command("plan", model, tokens, memory, exchange, host_memory="1000TB"))
        if isinstance(whole, str):
            return [name, exchange, whole]
        layers = all_layers
        planned = self.json_of(self.command("plan", model, tokens, memory, exchange))
        while isinstance(planned, str) or planned["step_time_s"] * self.options.steps > 60 * self.options.minutes:
            if layers == 1:
                return [name, exchange, planned if isinstance(planned, str) else "one layer takes too long"]
            layers = (layers + 1) // 2
            planned = self.json_of(self.command("plan", self.shortened(model, layers), tokens, memory, exchange))
        rows = self.rows_file(model, tokens, self.options.steps)
        lines, waited, peak = self.train(self.shortened(model, layers), tokens, memory, exchange, rows)
        scale = whole["step_time_s"] / planned["step_time_s"]
        rehearsed = None
        if not self.options.no_rehearsal:
            rehearsed = self.json_of(self.command("rehearse", model, tokens, memory, exchange, host_memory="1000TB", layers=1))
        seconds = lines[-1]["step_time_s"]
        gpus = f"{reference_s} s, {reference_gb} GB" if self.ranks == REFERENCE_RANKS else ""
        return [name, exchange, f"{layers} of {all_layers}", f"{seconds:.2f}", f"{seconds * scale:.1f}", f"{whole['step_time_s']:.1f}",
                "" if rehearsed is None else rehearsed if isinstance(rehearsed, str) else f"{rehearsed['step_time_s']:.1f}",
                "" if waited is None else f"{waited:.3f}", f"{lines[-1]['peak_device_bytes'] / 2**30:.2f}",
                f"{peak / 2**30:.2f}" if peak else "", f"{lines[-1]['loss']:.4f}", gpus]


class Watch:
    """The most memory in use on any GPU, by nvidia-smi, while it is open."""

    def __init__(self, there):
        self.there, self.peak, self.done = there, 0, threading.Event()

    def __enter__(self):
        if self.there:
            self.thread = threading.Thread(target=self.poll)
            self.thread.start()
        return self

    def poll(self):
        while not self.done.wait(0.5):
            text = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                                  capture_output=True, text=True).stdout
            self.peak = max([self.peak] + [int(line) << 20 for line in text.split()])

    def __exit__(self, *_):
        self.done.set()
        if self.there:
            self.thread.join()


def count_gpus():
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines()
    if not listed:
        sys.exit("nvidia-smi lists no GPU: --num_processes and --device cpu run it without")
    return len(listed)


def main():
    options = parse_arguments()
    known = {row[0]: row for row in ROWS}
    names = options.rows.split(",")
    for name in names:
        if name not in known:
            sys.exit(f"--rows: there is no {name}: {', '.join(known)}")
    with tempfile.TemporaryDirectory() as work:
        bench = Bench(options, work)
        if not bench.check_ranks():
            sys.exit(1)
        heads = ("row", "exchange", "layers", "s/step", "s/step, all layers", "planned, s", "rehearsed, s", "waited, s", "planned GiB",
                 "driver GiB", "loss", f"reference, {REFERENCE_RANKS} GPUs")
        table = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
        print("\n".join(table), flush=True)
        for name in names:
            for exchange in options.exchanges.split(","):
                cells = bench.measure(known[name], exchange)
                table.append("| " + " | ".join(cells + [""] * (len(heads) - len(cells))) + " |")
                print(table[-1], flush=True)
        if options.out:
            options.out.write_text("\n".join(table) + "\n")


if __name__ == "__main__":
    main()
