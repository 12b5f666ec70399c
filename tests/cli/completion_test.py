"""Shell completion, asked as each shell asks it. A shell that isn't installed is skipped.

usage: completion_test.py PROGRAM [unittest arguments]
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()


def output(*command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60, **more).stdout


class CompletionTest(unittest.TestCase):
    def script(self, shell):
        return output(PROGRAM, "completion", shell)

    def bash(self, *words):
        program = 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _megatoken; printf "%s\\n" "${COMPREPLY[@]}"'
        return output("bash", "-c", self.script("bash") + program, "bash", "megatoken", *words).split()

    def test_bash_offers_what_help_shows(self):
        shown = re.findall(r"(?m)^  ([a-z]+) ", output(PROGRAM, "--help"))
        self.assertEqual(sorted(self.bash("")), sorted(shown + ["--help", "--version"]))
        self.assertEqual(self.bash("tok"), ["tokenize"])
        self.assertEqual(self.bash("tokenize", "--to"), ["--tokenizer"])
        self.assertEqual(self.bash("train", "--learning"), ["--learning_rate"])
        self.assertEqual(self.bash("train", "run.yaml", "--max-len"), ["--max_length"])
        self.assertEqual(self.bash("doctor", "--learning"), [])
        self.assertIn("--find", self.bash("plan", "--f"))

    def test_every_honoured_key(self):
        table = json.loads(output(PROGRAM, "train", "--help-keys=json"))
        keys = {"--" + row["name"] for row in table if row["use"] == "honoured" and row["default"]}
        for shell in ("bash", "zsh", "fish"):
            script = self.script(shell).replace(" -l ", " --")
            missing = [key for key in keys if not re.search(re.escape(key) + r"(?![\w.])", script)]
            self.assertEqual(missing, [], shell)

    @unittest.skipUnless(shutil.which("zsh"), "no zsh here")
    def test_zsh(self):
        # _describe is told the array's name: print what it holds.
        program = "_describe() { print -rl -- ${(P)2}; }; _files() { print FILES; }; compdef() { }\n" + self.script("zsh")


        def ask(words, prefix):
            line = f"words=(megatoken {words} {prefix}); CURRENT=$#words; PREFIX={prefix}; _megatoken"
            return output("zsh", "-fc", program + line)

        self.assertIn("train:Fine-tune a model\n", ask("", "''"))
        self.assertRegex(ask("train", "--l"), r"(?m)^--learning_rate:")
        self.assertEqual(ask("train", "''"), "FILES\n")

    @unittest.skipUnless(shutil.which("fish"), "no fish here")
    def test_fish(self):
        def ask(line):
            return output("fish", "-Nc", self.script("fish") + f"\ncomplete -C '{line}'")

        self.assertIn("train\tFine-tune a model\n", ask("megatoken "))
        self.assertRegex(ask("megatoken train --learning"), r"(?m)^--learning_rate\t")

    def test_unknown_shell(self):
        done = subprocess.run([PROGRAM, "completion", "tcsh"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"^error: .*(bash|zsh|fish).*\n$")


if __name__ == "__main__":
    unittest.main()
