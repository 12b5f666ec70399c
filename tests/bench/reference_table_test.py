"""bench/reference_table.py on the CPU: small models under the names of the table's, a thousandth of its tokens.

    reference_table_test.py SCRIPT PROGRAM
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SCRIPT, PROGRAM = sys.argv[1:3]


class ReferenceTable(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.models = pathlib.Path(self.work.name)
        original = pathlib.Path(SCRIPT).parent / "models" / "qwen3-0.6b" / "config.json"
        config = json.loads(original.read_text())
        config.update(hidden_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                      intermediate_size=96, vocab_size=300)
        (self.models / "qwen3-0.6b").mkdir()
        (self.models / "qwen3-0.6b" / "config.json").write_text(json.dumps(config))

    def tearDown(self):
        self.work.cleanup()

    def run_table(self, *more):
        out = self.models / "table.md"
        command = [sys.executable, SCRIPT, PROGRAM, "--device", "cpu", "--num_processes", "2", "--models", self.models,
                   "--tokens_divisor", "1024", "--out", out, *more]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        lines = out.read_text().splitlines() if out.exists() else []
        return done, [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]

    def test_rows_are_measured_by_both_exchanges(self):
        done, table = self.run_table("--rows", "0.6b-1m,8b-1m")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(len(re.findall(r"^ok     2 ranks by", done.stdout, re.M)), 2)
        self.assertEqual([row[:3] for row in table[2:4]], [["0.6b-1m", "allgather", "4 of 4"], ["0.6b-1m", "alltoall", "4 of 4"]])
        for row in table[2:4]:
            self.assertGreater(float(row[3]), 0)
            self.assertLess(abs(float(row[10]) - 5.7), 0.5)
        self.assertTrue(all(row[2].startswith("no ") for row in table[4:6]), table)

    def test_a_row_that_takes_too_long_is_shortened(self):
        plan = [PROGRAM, "plan", "--json", "--model_name_or_path", self.models / "qwen3-0.6b", "--init_from_config", "true",
                "--max_length", "1024", "--num_processes", "2", "--cp_size", "2", "--per_device_train_batch_size", "1",
                "--device", "cpu"]
        planned = json.loads(subprocess.run(list(map(str, plan)), capture_output=True, text=True, check=True).stdout)
        minutes = 0.75 * 2 * planned["step_time_s"] / 60  # of two steps
        more = ("--rows", "0.6b-1m", "--exchanges", "allgather", "--no_rehearsal")
        done, table = self.run_table(*more, "--minutes", f"{minutes:.9f}")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(table[2][2], ("2 of 4", "1 of 4"))
        done, table = self.run_table(*more, "--minutes", "1e-7")
        self.assertEqual(table[2][2], "one layer takes too long")

    def test_unknown_rows_are_named(self):
        done, _ = self.run_table("--rows", "70b")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no 70b: 0.6b-1m", done.stderr)


unittest.main(argv=sys.argv[:1])
