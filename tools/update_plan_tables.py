"""Puts what `megatoken plan` says of a few jobs into docs/long_context.md and docs/planning.md.

    python3 tools/update_plan_tables.py build/megatoken            # writes
    python3 tools/update_plan_tables.py build/megatoken --check    # exits 1 when a number is off by more than 3 %

Only the models' config.json are needed (bench/models). Budgets describe H200 GPUs, eight to a host of 2 TB.
"""

import json
import pathlib
import re
import subprocess
import sys

from update_key_docs import with_part

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODELS = ROOT / "bench/models"
TOLERANCE = 0.03

# model, tokens, GPUs, device_memory; TRL's seconds and peak GB a GPU on as many H100s (its pull requests 6845 and 6846).
JOBS = [
    ("qwen3-0.6b", 1048576, 8, "80GiB", "137", "27.9"),
    ("qwen3-0.6b", 1048576, 8, "8GiB", "137", "27.9"),
    ("qwen3-8b", 1048576, 8, "80GiB", "364 to 380", "56.2"),
    ("qwen3-8b", 1048576, 8, "18GiB", "364 to 380", "56.2"),
    ("qwen3-32b", 1048576, 8, "60GiB", "1295", "60.8"),
    ("qwen3-32b", 1048576, 8, "24GiB", "1295", "60.8"),
    ("qwen3-0.6b", 4194304, 8, "24GiB", "2135", "73.7"),
    ("qwen3-8b", 2097152, 16, "20GiB", "696", ""),
    ("qwen3-8b", 4194304, 32, "24GiB", "1346", ""),
    ("qwen3-0.6b", 1048576, 1, "78GiB", "", ""),
]
LADDER = ("qwen3-8b", 1048576, 8, ["140GiB", "80GiB", "60GiB", "40GiB", "30GiB", "24GiB", "20GiB", "18GiB", "16GiB"])

# Model, tokens, GPUs, the memory of each that has to be enough, and the seconds a step may take there (with cuDNN's
# attention).
TARGETS = [
    ("qwen3-0.6b", 1048576, 8, "8GiB", 105),
    ("qwen3-8b", 1048576, 8, "18GiB", 275),
    ("qwen3-32b", 1048576, 8, "60GiB", 985),
    ("qwen3-32b", 1048576, 8, "24GiB", 1075),
    ("qwen3-0.6b", 4194304, 8, "24GiB", 1640),
    ("qwen3-8b", 2097152, 16, "20GiB", 540),
    ("qwen3-8b", 4194304, 32, "24GiB", 1065),
]


def plan(program, model, tokens, ranks, memory):
    command = [program, "plan", "--json", "--model_name_or_path", MODELS / model, "--max_length", tokens, "--bf16"]
    command += ["--num_processes", ranks, "--cp_size", ranks, "--num_machines", (ranks + 7) // 8, "--device", "cuda"]
    command += ["--device_memory", memory, "--host_memory", "2TB", "--per_device_train_batch_size", 1]
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def gib(size):
    return f"{size / 2**30:.1f}"


def name_of(model):
    return model.replace("qwen", "Qwen").replace("b", "B")


def jobs_table(program):
    lines = [
        "| model | tokens | GPUs | device_memory | step, s | device, GiB | host, GiB each host | TRL: step, s | TRL: GB a GPU |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for model, tokens, ranks, memory, seconds, size in JOBS:
        p = plan(program, model, tokens, ranks, memory)
        lines.append(
            f"| {name_of(model)} | {tokens:,} | {ranks} | {memory} | {p['step_time_s']:.1f} | {gib(p['device_peak_bytes'])} "
            f"| {gib(p['host_peak_bytes'])} | {seconds} | {size} |"
        )
    return "\n".join(lines)


def ladder_table(program):
    model, tokens, ranks, budgets = LADDER
    lines = ["| device_memory | step, s | device, GiB | host, GiB a rank | levers: GiB saved, seconds lost |", "|---|---|---|---|---|"]
    for memory in budgets:
        p = plan(program, model, tokens, ranks, memory)
        levers = "; ".join(f"{v['name']}: {gib(v['saves_bytes'])}, {v['costs_s']:.2f}" for v in p["levers"]) or "none"
        host = p["host_peak_bytes"] / min(ranks, 8)
        lines.append(f"| {memory} | {p['step_time_s']:.1f} | {gib(p['device_peak_bytes'])} | {gib(host)} | {levers} |")
    return "\n".join(lines)


def targets_table(program):
    lines = [
        "| model | tokens | GPUs | inside | device, GiB | host, GiB each host | step, s | at most, s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for model, tokens, ranks, memory, most in TARGETS:
        p = plan(program, model, tokens, ranks, memory)
        lines.append(
            f"| {name_of(model)} | {tokens:,} | {ranks} | {memory} | {gib(p['device_peak_bytes'])} "
            f"| {gib(p['host_peak_bytes'])} | {p['step_time_s']:.1f} | {most} |"
        )
    return "\n".join(lines)


def small_devices_table(program):
    lines = ["| model | tokens | GPUs | device, GiB | host, GiB each host | step, s | levers |", "|---|---|---|---|---|---|---|"]
    for model, tokens, ranks in dict.fromkeys(job[:3] for job in TARGETS):
        p = plan(program, model, tokens, ranks, "24GiB")
        levers = "; ".join(lever["name"] for lever in p["levers"])
        lines.append(
            f"| {name_of(model)} | {tokens:,} | {ranks} | {gib(p['device_peak_bytes'])} | {gib(p['host_peak_bytes'])} "
            f"| {p['step_time_s']:.1f} | {levers} |"
        )
    return "\n".join(lines)


def near(old, new):
    """Equal but for numbers that are within the tolerance; the smallest ones may differ by more."""
    number = re.compile(r"\d[\d,]*\.?\d*")
    if number.sub("0", old) != number.sub("0", new):
        return False
    pairs = zip(number.findall(old), number.findall(new))
    return all(
        abs(a - b) <= TOLERANCE * max(abs(a), abs(b)) + 0.3
        for a, b in ((float(x.replace(",", "")), float(y.replace(",", ""))) for x, y in pairs)
    )


def main():
    program, check = sys.argv[1], "--check" in sys.argv[2:]
    for document, name, table in (
        ("docs/long_context.md", "planned jobs", jobs_table),
        ("docs/long_context.md", "planned levers", ladder_table),
        ("docs/planning.md", "planned targets", targets_table),
        ("docs/planning.md", "plans for 24 GiB", small_devices_table),
    ):
        path = ROOT / document
        old, new = with_part(path, name, table(program))
        if check and not near(old, new):
            raise SystemExit(f"{document}: {name}: out of date; python3 tools/update_plan_tables.py build/megatoken")
        if not check and old != new:
            path.write_text(new)
            print(f"wrote {name}")


main()
