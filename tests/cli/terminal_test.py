"""What a terminal shows of a training: at 40 columns, with no colour and no UTF-8 locale; and what a pipe gets.

usage: terminal_test.py PROGRAM [unittest arguments]
"""

import fcntl
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
TOKENS = 12000  # a row: layers take longer than the bar waits between two pictures, also on a fast machine
GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden/qwen3_tied"


class TerminalTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        rows = pathlib.Path(folder.name) / "rows.jsonl"
        rows.write_text("".join(json.dumps({"input_ids": [(i * i + r) % 97 for i in range(TOKENS)]}) + "\n" for r in range(4)))
        self.command = [PROGRAM, "train", "--model_name_or_path", GOLDEN, "--dataset_name", rows, "--use_cpu"]
        self.command += ["--max_length", str(TOKENS), "--max_steps", "2", "--per_device_train_batch_size", "1", "--report_to", "none"]
        self.command += ["--per_device_eval_batch_size", "1", "--gradient_accumulation_steps", "2", "--eval_dataset", rows]
        self.command += ["--eval_strategy", "steps", "--eval_steps", "2", "--logging_steps", "1", "--save_strategy", "no"]
        self.command += ["--output_dir", folder.name]
        self.environment = {k: v for k, v in os.environ.items() if k not in ("TERM", "COLUMNS", "LANG")}
        self.environment |= dict(LC_ALL="C", NO_COLOR="1", OMP_NUM_THREADS="1")

    def on_terminal(self, columns, **variables):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen(self.command, stdout=slave, stderr=slave, env=self.environment | variables)
        os.close(slave)
        shown = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # the program has closed its side
                break
            if not part:
                break
            shown += part
        os.close(master)
        self.assertEqual(process.wait(), 0, shown)
        return shown

    def test_forty_columns(self):
        shown = self.on_terminal(40, TERM="xterm-256color")
        self.assertEqual([c for c in shown if c > 126], [], "not ASCII")
        # Escape sequences: none but "erase to the end of the line".
        self.assertEqual(set(re.findall(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[^\[]", shown)), {b"\x1b[K"})
        drawn = [part.split(b"\r")[0] for part in shown.split(b"\x1b[K")[1:]]
        bars = [line for line in drawn if line.startswith(b"step ") and b"loss" not in line]
        self.assertGreater(len(bars), 4)
        for line in bars:
            self.assertLess(len(line), 40, line)
        self.assertTrue(any(re.search(rb"^step [12]/2 (forward|backward) [12]/2", line) for line in bars), bars)
        self.assertTrue(any(b" left " in line for line in bars), bars)

    def test_wide(self):
        shown = self.on_terminal(160, TERM="xterm")
        self.assertRegex(shown, rb"\[#*\.*\] step [12]/2 micro-batch \d+/2 (forward|backward) layer [12]/2")
        self.assertIn(b" evaluation layer ", shown)
        # The bar is gone before a line is written over it.
        for line in shown.split(b"\r\n"):
            if b" loss " in line and b"step" in line:
                self.assertRegex(line.split(b"\x1b[K")[-1], rb"^(step \d|evaluation at)")

    def test_dumb_terminal_and_pipe(self):
        dumb = self.on_terminal(80, TERM="dumb")
        piped = subprocess.run(self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.environment, check=True).stdout
        for shown in (dumb.replace(b"\r\n", b"\n"), piped):
            self.assertNotRegex(shown, rb"[\r\x1b\x80-\xff]")
            self.assertEqual(len(re.findall(rb"(?m)^step [12]/2 loss ", shown)), 2)


if __name__ == "__main__":
    unittest.main()
