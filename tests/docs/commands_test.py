"""Runs every command and every YAML of the documents and examples on the CPU. They are scaled down by keys, which the
program that they call appends (SCALE): rows are short, the model is tiny, steps are few; plans are made at full size.
Commands that build or measure the program, or need a Python package, are only checked for what they name.

usage: commands_test.py PROGRAM [unittest arguments]
"""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

import documents
from documents import ROOT

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
LAUNCHERS = ("torchrun", "accelerate", "srun", "sbatch", "mpirun", "mpiexec", "kubectl")
SCALE = "--init_from_config true --max_length 192 --max_steps 2 --use_cpu true --report_to none --save_strategy no"
TEXT = "In the beginning was the word, and the word was here to be counted and cut, line by line.\n\n"
# Words of the documents that stand for something of the reader's.
WORDS = {
    "CONFIG.yaml": "run.yaml", "your.yaml": "run.yaml", "F": "accelerate.yaml", "HOST0": "node0", "DIR": "tiny",
    "FILE.jsonl": "rows.jsonl", "FILE": "books/1.txt", "OUT_DIR": "exported", "CHECKPOINT": "checkpoint",
}  # fmt: skip
CONFIG = {
    "model_type": "qwen3", "vocab_size": 257, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 4,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "tie_word_embeddings": True,
    "max_position_embeddings": 8192, "eos_token_id": 256,
}  # fmt: skip
WRAPPER = """#!/bin/bash
case $1 in
  train | eval | rehearse) set -- "$@" --model_name_or_path {tiny} {scale} ;;
esac
case $1 in train | eval) set -- "$@" --dataset_name {rows} --eval_dataset {rows} ;; esac
for argument; do
  if [ "$argument" = --main_process_ip ]; then
    set -- "$@" --main_process_ip 127.0.0.1 --main_process_port "$TEST_PORT"
    break
  fi
done
exec {program} "$@"
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class World:
    """A folder where the documents' commands find what they name: models, rows, books, launchers."""

    def __init__(self, folder):
        self.folder = folder
        self.tiny = folder / "tiny"
        self.tokenizer(self.tiny)
        rows = "".join(json.dumps({"text": TEXT * (i + 1)}) + "\n" for i in range(6))
        self.rows = folder / "rows.jsonl"
        self.rows.write_text(rows)
        self.bin = folder / "bin"
        self.bin.mkdir()
        wrapper = self.bin / "megatoken"
        wrapper.write_text(WRAPPER.format(tiny=self.tiny, rows=self.rows, scale=SCALE, program=PROGRAM))
        wrapper.chmod(0o755)
        for name in LAUNCHERS:
            shutil.copy(ROOT / "tests/docs/launchers.py", self.bin / name)
            (self.bin / name).chmod(0o755)

    def tokenizer(self, folder):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(CONFIG))
        for file in (ROOT / "configs/demo").glob("*.json"):
            shutil.copy(file, folder)

    def place(self, name):
        """A copy of the examples where commands are run, with what their documents expect."""
        place = self.folder / name / "examples/sft_long_context"
        shutil.copytree(ROOT / "examples", self.folder / name / "examples")
        shutil.copytree(ROOT / "configs", self.folder / name / "configs")
        for model in (ROOT / "bench/models").iterdir():  # real shapes, for plans
            hub = "Qwen/" + model.name.replace("qwen", "Qwen").replace("b", "B")
            shutil.copytree(model, place / hub)
            self.tokenizer(place / hub.removeprefix("Qwen/"))
        self.tokenizer(place / "SmolLM2-135M")
        (place / "book.txt").write_text(TEXT * 4)
        (place / "books").mkdir()
        for i in range(20):
            (place / f"books/{i}.txt").write_text(TEXT * 40)
        shutil.copy(self.rows, place / "pg19.jsonl")
        shutil.copy(self.rows, place / "rows.jsonl")
        (place / "run.yaml").write_text(self.run_yaml())
        for file, document in (("sft.yaml", "docs/from_trl.md"),):
            found = next(documents.yaml_blocks(ROOT / document))
            (place / file).write_text(found.commands[0] + "model_name_or_path: tiny\n")
        for file in ("context_parallel_8gpu.yaml", "accelerate.yaml"):
            shutil.copy(ROOT / "examples/accelerate_configs/context_parallel_8gpu.yaml", place / file)
        return place

    @staticmethod
    def run_yaml():
        """The configuration that README.md shows."""
        return next(documents.yaml_blocks(ROOT / "README.md")).commands[0]

    def environment(self, cwd):
        keep = {k: v for k, v in os.environ.items() if not re.match(r"SLURM_|OMPI_|PMI|RANK$|WORLD_SIZE$|MASTER_|MEGATOKEN", k)}
        return keep | dict(
            PATH=f"{self.bin}:{os.environ['PATH']}", HOME=str(cwd), XDG_CACHE_HOME=str(cwd / "cache"), OMP_NUM_THREADS="1",
            OMP_WAIT_POLICY="passive", TEST_PORT=str(free_port()), MEGATOKEN_JOIN_SECONDS="60", MEGATOKEN="megatoken",
        )  # fmt: skip


def hosts_of(command):
    """A command for each host where it stands for all of them (R, r), else itself."""
    if re.search(r" (R|r)( |$)", command):
        return [re.sub(r" (R|r)(?= |$)", f" {host}", command) for host in (0, 1)]
    return [command]


def is_of_a_host(command):
    return re.search(r"--machine_rank|--node-rank|torchrun\.sh", command)


class CommandsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.world = World(pathlib.Path(cls.scratch.name))
        help_text = subprocess.run([ROOT / "dev", "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
        cls.dev_commands = set(re.findall(r"(?m)^  ([a-z]+) ", help_text))
        cls.gloo = "built without Gloo" not in cls.two_processes()

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    @classmethod
    def two_processes(cls):
        command = ["megatoken", "eval", "--num_processes", "2", "--num_machines", "2", "--machine_rank", "1"]
        command += ["--main_process_ip", "127.0.0.1", "--main_process_port", "1"]
        environment = cls.world.environment(cls.world.folder) | dict(MEGATOKEN_JOIN_SECONDS="1")
        return subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False).stderr

    def check_named(self, found, command):
        """Of commands that are not run: what they name is there. True when the command is such a one."""
        words = re.sub(r"^(?:[A-Z_]+=\S+ )*", "", command).split()
        if words[0] == "./dev":
            self.assertIn(words[1], self.dev_commands, f"{found}: {command}")
        elif re.match(r"python3?$", words[0]) and words[1].startswith("tools/"):
            self.assertTrue((ROOT / words[1]).exists(), f"{found}: {command}: no such script")
            compile((ROOT / words[1]).read_text(), words[1], "exec")
        elif words[0].startswith("bench/"):
            subprocess.run(["bash", "-n", ROOT / words[0]], check=True)
        elif re.match(r"build/\w+_bench$", words[0]):
            self.assertTrue((ROOT / f"bench/{words[0].removeprefix('build/')}.cpp").exists(), f"{found}: {command}")
        elif words[0] == "git":
            pass
        else:
            return False
        return True

    def run_all(self, found, commands, cwd):
        """Runs commands all at once; each must end with status 0."""
        environment = self.world.environment(cwd)
        if not self.gloo and any(re.match(r"(\S*/)?(torchrun|accelerate|srun|sbatch|mpi|kubectl)|.*--machine_rank", c) for c in commands):
            return
        started = []
        for command in commands:
            log = tempfile.TemporaryFile("w+")
            started.append((subprocess.Popen(["bash", "-c", command], cwd=cwd, env=environment, stdout=log, stderr=log), log, command))
        for process, log, command in started:
            status = process.wait(timeout=120)
            log.seek(0)
            said = log.read()
            log.close()
            self.assertEqual(status, 0, f"{found}: {command}\n{said[-2000:]}")

    def prepared(self, command):
        command = re.sub(r"^(\S+=\S+ )*build/megatoken", r"\1megatoken", command)
        command = " ".join(WORDS.get(word, word) for word in command.split(" "))
        if "make_rows.py" in command:
            command += " --tokens 300" + (" --rows 3" if "--rows" in command else "")
        return command

    def test_commands(self):
        ran = 0
        for number, document in enumerate(documents.documents()):
            every = documents.commands(document)
            if not every:
                continue
            cwd = self.world.place(f"document{number}")
            for found in every:
                together = []
                for command in found.commands:
                    command = self.prepared(command)
                    if self.check_named(found, command):
                        continue
                    first = re.sub(r"^(?:[A-Z_]+=\S+ )*", "", command).split()[0]
                    known = first in (*LAUNCHERS, "megatoken", "python3", "./torchrun.sh", "cp", "mkdir", "export")
                    self.assertTrue(known, f"{found}: {command}: what is this?")
                    hosts = hosts_of(command)
                    if is_of_a_host(command):
                        together += hosts
                        continue
                    self.run_all(found, hosts, cwd)
                    ran += 1
                if together:
                    self.run_all(found, together, cwd)
                    ran += len(together)
        self.assertGreater(ran, 25)

    # Configurations that the documents show.
    def test_yaml_of_documents(self):
        ran = 0
        for number, document in enumerate(documents.documents()):
            for found in documents.yaml_blocks(document):
                cwd = self.world.place(f"yaml{number}-{found.line}")
                (cwd / "shown.yaml").write_text(found.commands[0])
                self.run_all(found, ["megatoken train shown.yaml"], cwd)
                ran += 1
        self.assertGreater(ran, 1)

    # Every YAML of the examples and configs: with its documents' commands, and once by itself.
    def test_yaml_of_examples(self):
        ran = 0
        cwd = self.world.place("examples-yaml")
        for file in sorted((ROOT / "examples").rglob("*.yaml")):
            text = file.read_text()
            here = cwd.parents[1] / file.relative_to(ROOT)
            if "apiVersion:" in text:
                continue  # run by the README's kubectl command
            if "model_name_or_path" in text or "init_from_config" in text:
                command = f"megatoken train {here.name} --output_dir out"
            else:
                command = f"megatoken train --accelerate_config {here.name} --output_dir out"
            self.run_all(file.relative_to(ROOT), [command], here.parent)
            ran += 1
        self.assertGreater(ran, 5)

    # The published shapes fit where the comments of the examples say so.
    def test_examples_fit_their_gpus(self):
        cwd = self.world.place("fit")
        for name, hosts in (("one_gpu", 1), ("eight_gpus", 1), ("two_nodes", 2), ("four_nodes", 4)):
            command = f"megatoken plan {name}.yaml --num_machines {hosts} --device cuda --device_memory 79GiB --host_memory 1TiB"
            self.run_all(name, [command], cwd)


class ScalingTest(unittest.TestCase):
    def test_every_host(self):
        self.assertEqual(hosts_of("a --machine_rank r b"), ["a --machine_rank 0 b", "a --machine_rank 1 b"])
        self.assertEqual(hosts_of("a --seed 1"), ["a --seed 1"])


if __name__ == "__main__":
    unittest.main()
