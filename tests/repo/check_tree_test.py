"""check_tree.py must find every kind of planted fault, with and without git, and nothing in a clean tree."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_tree  # noqa: E402

CLEAN = {
    "README.md": "# A program\n\nIts workers write to /proc and ./build/work/x, a stubborn thing.\n",
    "src/base/error.h": "#pragma once\n// Refused by name.\nconst char* kPath = \"../work/x\";  // a/root/b\n",
    "tests/text/data/words.json": '{"TODO": 1, "FIXME": "/root/x"}\n',
}


class TreeTest(unittest.TestCase):
    def errors(self, planted=None, git=True, executable=()):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, content in {**CLEAN, **(planted or {})}.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
                if name in executable:
                    path.chmod(0o755)
            if git:
                subprocess.run(["git", "init", "-q", str(root)], check=True)
                subprocess.run(["git", "-C", str(root), "add", "-A"], check=True)
                (root / "untracked.cpp").write_text("// TODO: not ours yet\n")
            return check_tree.check(root)

    def assert_found(self, planted, place, words, **options):
        errors = self.errors(planted, **options)
        self.assertEqual(len(errors), 1, errors)
        self.assertTrue(errors[0].startswith(place + ": "), errors[0])
        self.assertIn(words, errors[0])

    def test_clean_tree(self):
        self.assertEqual(self.errors(), [])
        self.assertEqual(self.errors(git=False), [])

    def test_marks(self):
        for mark in ("TODO", "FIXME", "HACK", "XXX"):
            self.assert_found({"src/a.cpp": f"int a;\n// {mark}(me): later\n"}, "src/a.cpp:2", mark)
            self.assert_found({"src/a.cpp": f"int a;\n// {mark}(me): later\n"}, "src/a.cpp:2", mark, git=False)

    def test_words(self):
        for word in ("not implemented", "Not implemented", "not-implemented", "unimplemented", "stub", "Stubs", "placeholder"):
            self.assert_found({"docs/a.md": f"This is {word}.\n"}, "docs/a.md:1", word)

    def test_paths(self):
        for path in ("/work/main/x", "/root/x", "/home/me/x", "../shared/design.md", "(/root/.cache)"):
            self.assert_found({"dev": f"a\nb\ncd {path}\n"}, "dev:3", path.strip("(")[:4])

    def test_merge_leftover(self):
        self.assert_found({"src/a.cpp": "a\n<<<<<<< HEAD\n"}, "src/a.cpp:2", "merge")
        self.assert_found({"src/a.cpp": "a\n=======\n"}, "src/a.cpp:2", "merge")

    def test_large_file(self):
        self.assert_found({"tests/x.bin": b"\0" * (check_tree.MAX_BYTES + 1)}, "tests/x.bin:1", "at most")

    def test_encoding_and_line_ends(self):
        self.assert_found({"src/a.cpp": b"a\nb\xff\n"}, "src/a.cpp:2", "UTF-8")
        self.assert_found({"src/a.cpp": b"a\r\nb\r\n"}, "src/a.cpp:1", "CR LF")

    def test_script_that_cannot_be_started(self):
        self.assert_found({"tools/x.sh": "#!/bin/sh\n"}, "tools/x.sh:1", "chmod")
        self.assertEqual(self.errors({"tools/x.sh": "#!/bin/sh\n"}, executable=["tools/x.sh"]), [])

    def test_empty_tree_is_no_success(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(len(check_tree.check(pathlib.Path(folder))), 1)

    def test_deleted_file_is_skipped(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "a.cpp").write_text("// TODO\n")
            (root / "b.cpp").write_text("int b;\n")
            subprocess.run(["git", "init", "-q", folder], check=True)
            subprocess.run(["git", "-C", folder, "add", "-A"], check=True)
            os.remove(root / "a.cpp")
            self.assertEqual(check_tree.check(root), [])


if __name__ == "__main__":
    unittest.main()
